"""Configurations of theirs as ours and the other way, one pair of functions for each family."""

from __future__ import annotations

import math
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.interop.activations import activation_of, gated_of, ungated_of
from lm_experiments.interop.options import attention_bias, kv_heads, option, window
from lm_experiments.interop.ropes import read_rope, write_rope
from lm_experiments.model import Choice, ModelConfig, choose

Fields = dict[str, Any]

# BLOOM's configurations have no context length; this is what its models were trained at.
BLOOM_CONTEXT = 2048


def read_gpt2(theirs: Any) -> Fields:
    """Return the fields of our configuration for a `GPT2Config`."""
    _refuse(theirs, "scale_attn_by_inverse_layer_idx", False)
    _refuse(theirs, "add_cross_attention", False)
    scale = None if theirs.scale_attn_weights else 1.0
    return {
        **_sizes(theirs, theirs.n_inner or 4 * theirs.n_embd),
        "bias": True,
        "norm": _layernorm(theirs.layer_norm_epsilon),
        "placement": Choice("pre"),
        "ffn": ungated_of(theirs.activation_function),
        "position": Choice("learned"),
        "attention": choose("attention", "causal", {"scale": scale}),
    }


def write_gpt2(ours: ModelConfig) -> Fields:
    """Return the fields of a `GPT2Config`."""
    return {
        **_their_sizes(ours),
        "n_positions": ours.context_length,
        "n_inner": ours.width,
        "activation_function": activation_of(ours),
        "layer_norm_epsilon": option(ours, "norm.eps"),
        "scale_attn_weights": option(ours, "attention.scale") is None,
    }


def read_gpt_neox(theirs: Any) -> Fields:
    """Return the fields of our configuration for a `GPTNeoXConfig`."""
    bias = None if theirs.attention_bias else False
    return {
        **_sizes(theirs, theirs.intermediate_size),
        "bias": True,
        "norm": _layernorm(theirs.layer_norm_eps),
        "placement": Choice("parallel_two" if theirs.use_parallel_residual else "pre"),
        "ffn": ungated_of(theirs.hidden_act),
        "position": read_rope(theirs.rope_parameters, partial=True),
        "attention": choose("attention", "causal", {"bias": bias}),
    }


def write_gpt_neox(ours: ModelConfig) -> Fields:
    """Return the fields of a `GPTNeoXConfig`."""
    return {
        **_their_sizes(ours),
        "max_position_embeddings": ours.context_length,
        "intermediate_size": ours.width,
        "hidden_act": activation_of(ours),
        "layer_norm_eps": option(ours, "norm.eps"),
        "use_parallel_residual": ours.placement.name == "parallel_two",
        "attention_bias": attention_bias(ours),
        "rope_parameters": write_rope(ours, partial=True),
    }


def read_llama(theirs: Any) -> Fields:
    """Return the fields of our configuration for a `LlamaConfig`."""
    bias = None if theirs.attention_bias == theirs.mlp_bias else theirs.attention_bias
    return {
        **_read_gated(theirs, theirs.hidden_act, {"bias": bias}),
        "bias": theirs.mlp_bias,
        "placement": Choice("pre"),
    }


def write_llama(ours: ModelConfig) -> Fields:
    """Return the fields of a `LlamaConfig`."""
    return {
        **_write_gated(ours),
        "hidden_act": activation_of(ours),
        "head_dim": ours.width_of_head,
        "mlp_bias": ours.bias,
    }


def read_olmo2(theirs: Any) -> Fields:
    """Return the fields of our configuration for an `Olmo2Config`."""
    options = {"bias": theirs.attention_bias or None, **_qk_norm(theirs, "model")}
    return {**_read_gated(theirs, theirs.hidden_act, options), "placement": Choice("reordered")}


def write_olmo2(ours: ModelConfig) -> Fields:
    """Return the fields of an `Olmo2Config`."""
    return {**_write_gated(ours), "hidden_act": activation_of(ours)}


def read_qwen3(theirs: Any) -> Fields:
    """Return the fields of our configuration for a `Qwen3Config`."""
    options = {"bias": theirs.attention_bias or None, **_qk_norm(theirs, "head")}
    pattern, reach = _read_reaches(theirs)
    return {
        **_read_gated(theirs, theirs.hidden_act, {**options, "window": reach}),
        "placement": Choice("pre"),
        "attention_pattern": pattern,
    }


def write_qwen3(ours: ModelConfig) -> Fields:
    """Return the fields of a `Qwen3Config`."""
    return {
        **_write_gated(ours),
        "hidden_act": activation_of(ours),
        "head_dim": ours.width_of_head,
        "use_sliding_window": window(ours) is not None,
        "sliding_window": window(ours),
        "layer_types": _layer_types(ours),
    }


def read_gemma2(theirs: Any) -> Fields:
    """Return the fields of our configuration for a `Gemma2Config`."""
    if theirs.use_bidirectional_attention:
        raise InputError("use_bidirectional_attention=true is not a causal language model.")
    pattern, reach = _read_reaches(theirs)
    options = {
        "bias": theirs.attention_bias or None,
        "window": reach,
        "softcap": theirs.attn_logit_softcapping,
        "scale": _scale(theirs),
    }
    return {
        **_read_gated(theirs, theirs.hidden_activation, options),
        "norm": choose("norm", "rmsnorm", {"eps": theirs.rms_norm_eps, "offset": True}),
        "placement": Choice("peri"),
        "scale_embeddings": True,
        "logit_softcap": theirs.final_logit_softcapping,
        "attention_pattern": pattern,
    }


def write_gemma2(ours: ModelConfig) -> Fields:
    """Return the fields of a `Gemma2Config`."""
    scale = option(ours, "attention.scale")
    return {
        **_write_gated(ours),
        "hidden_activation": activation_of(ours),
        "head_dim": ours.width_of_head,
        "query_pre_attn_scalar": ours.width_of_head if scale is None else _scalar(scale),
        "attn_logit_softcapping": option(ours, "attention.softcap"),
        "final_logit_softcapping": ours.logit_softcap,
        # Theirs asks for one even where no layer has it.
        "sliding_window": window(ours) or ours.context_length,
        "layer_types": _layer_types(ours),
    }


def read_bloom(theirs: Any) -> Fields:
    """Return the fields of our configuration for a `BloomConfig`."""
    _refuse(theirs, "apply_residual_connection_post_layernorm", False)
    return {
        **_sizes(theirs, 4 * theirs.hidden_size, getattr(theirs, "seq_length", BLOOM_CONTEXT)),
        "bias": True,
        "embedding_norm": True,
        "norm": _layernorm(theirs.layer_norm_epsilon),
        "placement": Choice("pre"),
        "ffn": choose("ffn", "gelu", {"approximate": "tanh"}),
        "position": Choice("alibi"),
        "attention": Choice("causal"),
    }


def write_bloom(ours: ModelConfig) -> Fields:
    """Return the fields of a `BloomConfig`; its feed-forward has no width and no activation."""
    return {
        **_their_sizes(ours),
        "seq_length": ours.context_length,
        "layer_norm_epsilon": option(ours, "norm.eps"),
    }


def _sizes(theirs: Any, width: int, context: int | None = None) -> Fields:
    return {
        "d_model": theirs.hidden_size,
        "n_layers": theirs.num_hidden_layers,
        "n_heads": theirs.num_attention_heads,
        "context_length": context or theirs.max_position_embeddings,
        "vocab_size": theirs.vocab_size,
        "tie_embeddings": theirs.tie_word_embeddings,
        "d_ff": width,
        "match": "none",
    }


def _their_sizes(ours: ModelConfig) -> Fields:
    return {
        "hidden_size": ours.d_model,
        "num_hidden_layers": ours.n_layers,
        "num_attention_heads": ours.n_heads,
        "vocab_size": ours.vocab_size,
        "tie_word_embeddings": ours.tie_embeddings,
    }


def _read_gated(theirs: Any, activation: str, attention: Fields) -> Fields:
    """Return what Llama and its descendants have in common."""
    kv = theirs.num_key_value_heads
    kind = "causal" if kv == theirs.num_attention_heads else "grouped"
    options = attention if kind == "causal" else {"kv_heads": kv, **attention}
    head_width = getattr(theirs, "head_dim", None)
    natural = head_width in (None, theirs.hidden_size / theirs.num_attention_heads)
    return {
        **_sizes(theirs, theirs.intermediate_size),
        "head_width": None if natural else head_width,
        "norm": choose("norm", "rmsnorm", {"eps": theirs.rms_norm_eps}),
        "ffn": gated_of(activation),
        "position": read_rope(theirs.rope_parameters, partial=False),
        "attention": choose("attention", kind, options),
    }


def _write_gated(ours: ModelConfig) -> Fields:
    return {
        **_their_sizes(ours),
        "max_position_embeddings": ours.context_length,
        "intermediate_size": ours.width,
        "num_key_value_heads": kv_heads(ours),
        "attention_bias": attention_bias(ours),
        "rms_norm_eps": option(ours, "norm.eps"),
        "rope_parameters": write_rope(ours, partial=False),
    }


def _qk_norm(theirs: Any, width: str) -> Fields:
    return {"qk_norm": "rmsnorm", "qk_norm_width": width, "qk_norm_eps": theirs.rms_norm_eps}


def _layernorm(eps: float) -> Choice:
    return choose("norm", "layernorm", {"eps": eps})


def _read_reaches(theirs: Any) -> tuple[list[str] | None, int | None]:
    """Return our attention pattern, shortened to its period, and the window."""
    local = [kind == "sliding_attention" for kind in theirs.layer_types]
    reach = theirs.sliding_window
    if not any(local) or reach is None or reach >= theirs.max_position_embeddings:
        return None, None
    names = ["local" if is_local else "global" for is_local in local]
    lengths = (n for n in range(1, len(names) + 1) if len(names) % n == 0)
    period = next(n for n in lengths if names[:n] * (len(names) // n) == names)
    return (None if all(local) else names[:period]), reach


def _layer_types(ours: ModelConfig) -> list[str]:
    if window(ours) is None:
        return ["full_attention"] * ours.n_layers
    kinds = {"local": "sliding_attention", "global": "full_attention"}
    return [kinds[reach] for reach in ours.layer_reaches]


def _scale(theirs: Any) -> float | None:
    scale: float = theirs.query_pre_attn_scalar**-0.5
    return None if theirs.query_pre_attn_scalar == theirs.head_dim else scale


def _scalar(scale: float) -> int:
    """Return the whole number of which a scale of the scores is one over the square root.

    Raises:
        InputError: where there is none.
    """
    scalar = round(scale**-2)
    if scalar < 1 or not math.isclose(scalar**-0.5, scale, rel_tol=1e-9):
        raise InputError(
            f"model.attention.scale={scale:g} cannot be expressed: Gemma 2 divides scores by the "
            "square root of a whole number."
        )
    return scalar


def _refuse(theirs: Any, name: str, neutral: Any) -> None:
    value = getattr(theirs, name)
    if value != neutral:
        raise InputError(
            f"{name}={value} has no counterpart here; only models with {name}={neutral} can be "
            "loaded."
        )
