"""Which module of theirs is which of ours, family by family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A module of theirs, and those of ours that it holds, in a layout of `layouts.LAYOUTS`."""

    theirs: str
    ours: tuple[str, ...]
    layout: str = "same"


@dataclass(frozen=True)
class Modules:
    """The modules of one family.

    Attributes:
        prefix: what their base model is called in the model with a head.
        blocks: what their list of blocks is called.
        outer: modules outside the blocks, without the prefix; the head has none, see `HEAD`.
        block: modules of one block.
    """

    prefix: str
    blocks: str
    outer: tuple[Place, ...]
    block: tuple[Place, ...]

    def places(self, n_layers: int) -> Iterator[Place]:
        """Yield every module of a model of this depth by its full name, the head last."""
        for place in self.outer:
            yield Place(f"{self.prefix}.{place.theirs}", place.ours, place.layout)
        for layer in range(n_layers):
            for place in self.block:
                theirs = f"{self.prefix}.{self.blocks}.{layer}.{place.theirs}"
                ours = tuple(f"blocks.{layer}.{name}" for name in place.ours)
                yield Place(theirs, ours, place.layout)
        yield HEAD


HEAD = Place("lm_head", ("head",))
QUERY_KEY_VALUE = ("attention.query", "attention.key", "attention.value")


def _same(names: Sequence[tuple[str, str]]) -> tuple[Place, ...]:
    return tuple(Place(theirs, (ours,)) for theirs, ours in names)


_LLAMA_OUTER = _same((("embed_tokens", "embedding"), ("norm", "final_norm")))
_LLAMA_LAYERS = _same(
    (
        ("self_attn.q_proj", "attention.query"),
        ("self_attn.k_proj", "attention.key"),
        ("self_attn.v_proj", "attention.value"),
        ("self_attn.o_proj", "attention.out"),
        ("mlp.gate_proj", "ffn.gate"),
        ("mlp.up_proj", "ffn.up"),
        ("mlp.down_proj", "ffn.down"),
    )
)
_IN_NORMS = _same(
    (
        ("input_layernorm", "attention_residual.in_norm"),
        ("post_attention_layernorm", "ffn_residual.in_norm"),
    )
)
_QK_NORMS = _same(
    (
        ("self_attn.q_norm", "attention.query_norm"),
        ("self_attn.k_norm", "attention.key_norm"),
    )
)
_OUTPUT_NORMS = _same(
    (
        ("post_attention_layernorm", "attention_residual.residual_norm"),
        ("post_feedforward_layernorm", "ffn_residual.residual_norm"),
    )
)
_SANDWICH_NORMS = (
    *_same(
        (
            ("input_layernorm", "attention_residual.in_norm"),
            ("pre_feedforward_layernorm", "ffn_residual.in_norm"),
        )
    ),
    *_OUTPUT_NORMS,
)

MODULES = {
    "gpt2": Modules(
        prefix="transformer",
        blocks="h",
        outer=_same((("wte", "embedding"), ("wpe", "position"), ("ln_f", "final_norm"))),
        block=(
            *_same((("ln_1", "attention_residual.in_norm"), ("ln_2", "ffn_residual.in_norm"))),
            Place("attn.c_attn", QUERY_KEY_VALUE, "stacked"),
            Place("attn.c_proj", ("attention.out",), "transposed"),
            Place("mlp.c_fc", ("ffn.up",), "transposed"),
            Place("mlp.c_proj", ("ffn.down",), "transposed"),
        ),
    ),
    "gpt_neox": Modules(
        prefix="gpt_neox",
        blocks="layers",
        outer=_same((("embed_in", "embedding"), ("final_layer_norm", "final_norm"))),
        block=(
            *_IN_NORMS,
            Place("attention.query_key_value", QUERY_KEY_VALUE, "by_head"),
            *_same(
                (
                    ("attention.dense", "attention.out"),
                    ("mlp.dense_h_to_4h", "ffn.up"),
                    ("mlp.dense_4h_to_h", "ffn.down"),
                )
            ),
        ),
    ),
    "llama": Modules("model", "layers", _LLAMA_OUTER, (*_LLAMA_LAYERS, *_IN_NORMS)),
    "olmo2": Modules("model", "layers", _LLAMA_OUTER, (*_LLAMA_LAYERS, *_QK_NORMS, *_OUTPUT_NORMS)),
    "qwen3": Modules("model", "layers", _LLAMA_OUTER, (*_LLAMA_LAYERS, *_QK_NORMS, *_IN_NORMS)),
    "gemma2": Modules("model", "layers", _LLAMA_OUTER, (*_LLAMA_LAYERS, *_SANDWICH_NORMS)),
    "bloom": Modules(
        prefix="transformer",
        blocks="h",
        outer=_same(
            (
                ("word_embeddings", "embedding"),
                ("word_embeddings_layernorm", "embedding_norm"),
                ("ln_f", "final_norm"),
            )
        ),
        block=(
            *_IN_NORMS,
            Place("self_attention.query_key_value", QUERY_KEY_VALUE, "by_head"),
            *_same(
                (
                    ("self_attention.dense", "attention.out"),
                    ("mlp.dense_h_to_4h", "ffn.up"),
                    ("mlp.dense_4h_to_h", "ffn.down"),
                )
            ),
        ),
    ),
}
