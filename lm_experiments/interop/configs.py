"""Conversion of configurations from and to Hugging Face, a pair of functions for each family."""

from __future__ import annotations

import math
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.interop.activations import activation_of, gated_of, ungated_of
from lm_experiments.interop.options import attention_bias, kv_heads, option, window
from lm_experiments.interop.ropes import read_rope, write_rope
from lm_experiments.model import Choice, ModelConfig, choose

Fields = dict[str, Any]

# A BloomConfig has no context length; this is the one its models were trained with.
BLOOM_CONTEXT = 2048


def read_gpt2(hf: Any) -> Fields:
    """Return the fields of our configuration for a `GPT2Config`."""
    _refuse(hf, "scale_attn_by_inverse_layer_idx", False)
    _refuse(hf, "add_cross_attention", False)
    scale = None if hf.scale_attn_weights else 1.0
    return {
        **_read_sizes(hf, hf.n_inner or 4 * hf.n_embd),
        "bias": True,
        "norm": _layernorm(hf.layer_norm_epsilon),
        "placement": Choice("pre"),
        "ffn": ungated_of(hf.activation_function),
        "position": Choice("learned"),
        "attention": choose("attention", "causal", {"scale": scale}),
    }


def write_gpt2(config: ModelConfig) -> Fields:
    """Return the fields of a `GPT2Config`."""
    return {
        **_write_sizes(config),
        "n_positions": config.context_length,
        "n_inner": config.width,
        "activation_function": activation_of(config),
        "layer_norm_epsilon": option(config, "norm.eps"),
        "scale_attn_weights": option(config, "attention.scale") is None,
    }


def read_gpt_neox(hf: Any) -> Fields:
    """Return the fields of our configuration for a `GPTNeoXConfig`."""
    bias = None if hf.attention_bias else False
    return {
        **_read_sizes(hf, hf.intermediate_size),
        "bias": True,
        "norm": _layernorm(hf.layer_norm_eps),
        "placement": Choice("parallel_two" if hf.use_parallel_residual else "pre"),
        "ffn": ungated_of(hf.hidden_act),
        "position": read_rope(hf.rope_parameters, partial=True),
        "attention": choose("attention", "causal", {"bias": bias}),
    }


def write_gpt_neox(config: ModelConfig) -> Fields:
    """Return the fields of a `GPTNeoXConfig`."""
    return {
        **_write_sizes(config),
        "max_position_embeddings": config.context_length,
        "intermediate_size": config.width,
        "hidden_act": activation_of(config),
        "layer_norm_eps": option(config, "norm.eps"),
        "use_parallel_residual": config.placement.name == "parallel_two",
        "attention_bias": attention_bias(config),
        "rope_parameters": write_rope(config, partial=True),
    }


def read_llama(hf: Any) -> Fields:
    """Return the fields of our configuration for a `LlamaConfig`."""
    bias = None if hf.attention_bias == hf.mlp_bias else hf.attention_bias
    return {
        **_read_gated(hf, hf.hidden_act, {"bias": bias}),
        "bias": hf.mlp_bias,
        "placement": Choice("pre"),
    }


def write_llama(config: ModelConfig) -> Fields:
    """Return the fields of a `LlamaConfig`."""
    return {
        **_write_gated(config),
        "hidden_act": activation_of(config),
        "head_dim": config.width_of_head,
        "mlp_bias": config.bias,
    }


def read_olmo2(hf: Any) -> Fields:
    """Return the fields of our configuration for an `Olmo2Config`."""
    options = {"bias": hf.attention_bias or None, **_qk_norm(hf, "model")}
    return {**_read_gated(hf, hf.hidden_act, options), "placement": Choice("reordered")}


def write_olmo2(config: ModelConfig) -> Fields:
    """Return the fields of an `Olmo2Config`."""
    return {**_write_gated(config), "hidden_act": activation_of(config)}


def read_qwen3(hf: Any) -> Fields:
    """Return the fields of our configuration for a `Qwen3Config`."""
    options = {"bias": hf.attention_bias or None, **_qk_norm(hf, "head")}
    pattern, reach = _read_reaches(hf)
    return {
        **_read_gated(hf, hf.hidden_act, {**options, "window": reach}),
        "placement": Choice("pre"),
        "attention_pattern": pattern,
    }


def write_qwen3(config: ModelConfig) -> Fields:
    """Return the fields of a `Qwen3Config`."""
    return {
        **_write_gated(config),
        "hidden_act": activation_of(config),
        "head_dim": config.width_of_head,
        "use_sliding_window": window(config) is not None,
        "sliding_window": window(config),
        "layer_types": _layer_types(config),
    }


def read_gemma2(hf: Any) -> Fields:
    """Return the fields of our configuration for a `Gemma2Config`."""
    if hf.use_bidirectional_attention:
        raise InputError("use_bidirectional_attention=true is not a causal language model.")
    pattern, reach = _read_reaches(hf)
    options = {
        "bias": hf.attention_bias or None,
        "window": reach,
        "softcap": hf.attn_logit_softcapping,
        "scale": _scale(hf),
    }
    return {
        **_read_gated(hf, hf.hidden_activation, options),
        "norm": choose("norm", "rmsnorm", {"eps": hf.rms_norm_eps, "offset": True}),
        "placement": Choice("peri"),
        "scale_embeddings": True,
        "logit_softcap": hf.final_logit_softcapping,
        "attention_pattern": pattern,
    }


def write_gemma2(config: ModelConfig) -> Fields:
    """Return the fields of a `Gemma2Config`."""
    scale = option(config, "attention.scale")
    return {
        **_write_gated(config),
        "hidden_activation": activation_of(config),
        "head_dim": config.width_of_head,
        "query_pre_attn_scalar": config.width_of_head if scale is None else _scalar(scale),
        "attn_logit_softcapping": option(config, "attention.softcap"),
        "final_logit_softcapping": config.logit_softcap,
        # Gemma2Config needs a window even if no layer uses it.
        "sliding_window": window(config) or config.context_length,
        "layer_types": _layer_types(config),
    }


def read_bloom(hf: Any) -> Fields:
    """Return the fields of our configuration for a `BloomConfig`."""
    _refuse(hf, "apply_residual_connection_post_layernorm", False)
    return {
        **_read_sizes(hf, 4 * hf.hidden_size, getattr(hf, "seq_length", BLOOM_CONTEXT)),
        "bias": True,
        "embedding_norm": True,
        "norm": _layernorm(hf.layer_norm_epsilon),
        "placement": Choice("pre"),
        "ffn": choose("ffn", "gelu", {"approximate": "tanh"}),
        "position": Choice("alibi"),
        "attention": Choice("causal"),
    }


def write_bloom(config: ModelConfig) -> Fields:
    """Return the fields of a `BloomConfig`; it has no feed-forward width and no activation."""
    return {
        **_write_sizes(config),
        "seq_length": config.context_length,
        "layer_norm_epsilon": option(config, "norm.eps"),
    }


def _read_sizes(hf: Any, width: int, context: int | None = None) -> Fields:
    return {
        "d_model": hf.hidden_size,
        "n_layers": hf.num_hidden_layers,
        "n_heads": hf.num_attention_heads,
        "context_length": context or hf.max_position_embeddings,
        "vocab_size": hf.vocab_size,
        "tie_embeddings": hf.tie_word_embeddings,
        "d_ff": width,
        "match": "none",
    }


def _write_sizes(config: ModelConfig) -> Fields:
    return {
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_embeddings,
    }


def _read_gated(hf: Any, activation: str, attention: Fields) -> Fields:
    """Return the fields that Llama and the families derived from it share."""
    kv = hf.num_key_value_heads
    kind = "causal" if kv == hf.num_attention_heads else "grouped"
    options = attention if kind == "causal" else {"kv_heads": kv, **attention}
    head_width = getattr(hf, "head_dim", None)
    natural = head_width in (None, hf.hidden_size / hf.num_attention_heads)
    return {
        **_read_sizes(hf, hf.intermediate_size),
        "head_width": None if natural else head_width,
        "norm": choose("norm", "rmsnorm", {"eps": hf.rms_norm_eps}),
        "ffn": gated_of(activation),
        "position": read_rope(hf.rope_parameters, partial=False),
        "attention": choose("attention", kind, options),
    }


def _write_gated(config: ModelConfig) -> Fields:
    return {
        **_write_sizes(config),
        "max_position_embeddings": config.context_length,
        "intermediate_size": config.width,
        "num_key_value_heads": kv_heads(config),
        "attention_bias": attention_bias(config),
        "rms_norm_eps": option(config, "norm.eps"),
        "rope_parameters": write_rope(config, partial=False),
    }


def _qk_norm(hf: Any, width: str) -> Fields:
    return {"qk_norm": "rmsnorm", "qk_norm_width": width, "qk_norm_eps": hf.rms_norm_eps}


def _layernorm(eps: float) -> Choice:
    return choose("norm", "layernorm", {"eps": eps})


def _read_reaches(hf: Any) -> tuple[list[str] | None, int | None]:
    """Return the attention pattern, shortened to its period, and the window."""
    local = [kind == "sliding_attention" for kind in hf.layer_types]
    reach = hf.sliding_window
    if not any(local) or reach is None or reach >= hf.max_position_embeddings:
        return None, None
    names = ["local" if is_local else "global" for is_local in local]
    lengths = (n for n in range(1, len(names) + 1) if len(names) % n == 0)
    period = next(n for n in lengths if names[:n] * (len(names) // n) == names)
    return (None if all(local) else names[:period]), reach


def _layer_types(config: ModelConfig) -> list[str]:
    if window(config) is None:
        return ["full_attention"] * config.n_layers
    kinds = {"local": "sliding_attention", "global": "full_attention"}
    return [kinds[reach] for reach in config.layer_reaches]


def _scale(hf: Any) -> float | None:
    scale: float = hf.query_pre_attn_scalar**-0.5
    return None if hf.query_pre_attn_scalar == hf.head_dim else scale


def _scalar(scale: float) -> int:
    """Return the integer n with ``scale = 1 / sqrt(n)``; an InputError if there is none."""
    scalar = round(scale**-2)
    if scalar < 1 or not math.isclose(scalar**-0.5, scale, rel_tol=1e-9):
        raise InputError(
            f"model.attention.scale={scale:g} is not supported by Gemma 2, which divides scores by "
            "the square root of a whole number."
        )
    return scalar


def _refuse(hf: Any, name: str, neutral: Any) -> None:
    value = getattr(hf, name)
    if value != neutral:
        raise InputError(
            f"{name}={value} is not supported; only models with {name}={neutral} can be loaded."
        )
