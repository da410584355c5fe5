"""The modules of Hugging Face models and the modules of ours that they correspond to, by family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lm_experiments.interop.layouts import BY_HEAD, SAME, STACKED, TRANSPOSED, Layout


@dataclass(frozen=True)
class ModuleMap:
    """A Hugging Face module or tensor, and those of ours that it holds, in order."""

    hf: str
    ours: tuple[str, ...]
    layout: Layout = SAME


@dataclass(frozen=True)
class Modules:
    """The modules of one family.

    Attributes:
        prefix: the name of the base model within the model with a head.
        blocks: the name of the list of blocks.
        outer: the modules outside the blocks, without the prefix and without the head.
        block: the modules of one block.
    """

    prefix: str
    blocks: str
    outer: tuple[ModuleMap, ...]
    block: tuple[ModuleMap, ...]

    def maps(self, n_layers: int) -> Iterator[ModuleMap]:
        """Yield every module of a model of this depth by its full name, the head last."""
        for module in self.outer:
            yield ModuleMap(f"{self.prefix}.{module.hf}", module.ours, module.layout)
        for layer in range(n_layers):
            for module in self.block:
                hf = f"{self.prefix}.{self.blocks}.{layer}.{module.hf}"
                ours = tuple(f"blocks.{layer}.{name}" for name in module.ours)
                yield ModuleMap(hf, ours, module.layout)
        yield HEAD


HEAD = ModuleMap("lm_head", ("head",))
QUERY_KEY_VALUE = ("attention.query", "attention.key", "attention.value")


def _same(**names: str) -> tuple[ModuleMap, ...]:
    """Map modules one to one; dots in the Hugging Face names are written as two underscores."""
    return tuple(ModuleMap(hf.replace("__", "."), (ours,)) for hf, ours in names.items())


_LLAMA_OUTER = _same(embed_tokens="embedding", norm="final_norm")
_LLAMA_LAYERS = _same(
    self_attn__q_proj="attention.query",
    self_attn__k_proj="attention.key",
    self_attn__v_proj="attention.value",
    self_attn__o_proj="attention.out",
    mlp__gate_proj="ffn.gate",
    mlp__up_proj="ffn.up",
    mlp__down_proj="ffn.down",
)
_IN_NORMS = _same(
    input_layernorm="attention_residual.in_norm",
    post_attention_layernorm="ffn_residual.in_norm",
)
_QK_NORMS = _same(self_attn__q_norm="attention.query_norm", self_attn__k_norm="attention.key_norm")
_OUTPUT_NORMS = _same(
    post_attention_layernorm="attention_residual.residual_norm",
    post_feedforward_layernorm="ffn_residual.residual_norm",
)
_MLP_4H = _same(mlp__dense_h_to_4h="ffn.up", mlp__dense_4h_to_h="ffn.down")

MODULES = {
    "gpt2": Modules(
        prefix="transformer",
        blocks="h",
        outer=_same(wte="embedding", wpe="position", ln_f="final_norm"),
        block=(
            *_same(ln_1="attention_residual.in_norm", ln_2="ffn_residual.in_norm"),
            ModuleMap("attn.c_attn", QUERY_KEY_VALUE, STACKED),
            ModuleMap("attn.c_proj", ("attention.out",), TRANSPOSED),
            ModuleMap("mlp.c_fc", ("ffn.up",), TRANSPOSED),
            ModuleMap("mlp.c_proj", ("ffn.down",), TRANSPOSED),
        ),
    ),
    "gpt_neox": Modules(
        prefix="gpt_neox",
        blocks="layers",
        outer=_same(embed_in="embedding", final_layer_norm="final_norm"),
        block=(
            *_IN_NORMS,
            ModuleMap("attention.query_key_value", QUERY_KEY_VALUE, BY_HEAD),
            *_same(attention__dense="attention.out"),
            *_MLP_4H,
        ),
    ),
    "llama": Modules("model", "layers", _LLAMA_OUTER, (*_LLAMA_LAYERS, *_IN_NORMS)),
    "olmo2": Modules("model", "layers", _LLAMA_OUTER, (*_LLAMA_LAYERS, *_QK_NORMS, *_OUTPUT_NORMS)),
    "qwen3": Modules("model", "layers", _LLAMA_OUTER, (*_LLAMA_LAYERS, *_QK_NORMS, *_IN_NORMS)),
    "gemma2": Modules(
        prefix="model",
        blocks="layers",
        outer=_LLAMA_OUTER,
        block=(
            *_LLAMA_LAYERS,
            *_same(input_layernorm="attention_residual.in_norm"),
            *_same(pre_feedforward_layernorm="ffn_residual.in_norm"),
            *_OUTPUT_NORMS,
        ),
    ),
    "bloom": Modules(
        prefix="transformer",
        blocks="h",
        outer=_same(
            word_embeddings="embedding",
            word_embeddings_layernorm="embedding_norm",
            ln_f="final_norm",
        ),
        block=(
            *_IN_NORMS,
            ModuleMap("self_attention.query_key_value", QUERY_KEY_VALUE, BY_HEAD),
            *_same(self_attention__dense="attention.out"),
            *_MLP_4H,
        ),
    ),
}
