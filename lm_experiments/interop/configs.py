"""Conversion of configurations: a function to read each family, and a table to write it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from transformers import AutoConfig

from lm_experiments.errors import InputError
from lm_experiments.interop.activations import activation_of, feedforward_of
from lm_experiments.interop.options import attention_bias, kv_heads, option, window
from lm_experiments.interop.ropes import read_rope, write_rope
from lm_experiments.model import Choice, ModelConfig, choose

Fields = dict[str, Any]

# Hugging Face's name of a field -> its path in our configuration, or a function that returns it.
Writers = Mapping[str, str | Callable[[ModelConfig], Any]]
_SIZES = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "vocab_size": "vocab_size",
    "tie_word_embeddings": "tie_embeddings",
}


def _read_gpt2(hf: Any) -> Fields:
    _refuse(hf, "scale_attn_by_inverse_layer_idx")
    _refuse(hf, "add_cross_attention")
    scale = None if hf.scale_attn_weights else 1.0
    return {
        **_read_sizes(hf, hf.n_inner or 4 * hf.n_embd),
        "bias": True,
        "norm": _layernorm(hf.layer_norm_epsilon),
        "placement": Choice("pre"),
        "ffn": feedforward_of(hf.activation_function, gated=False),
        "position": Choice("learned"),
        "attention": choose("attention", "causal", {"scale": scale}),
    }


def _read_gpt_neox(hf: Any) -> Fields:
    bias = None if hf.attention_bias else False
    return {
        **_read_sizes(hf, hf.intermediate_size),
        "bias": True,
        "norm": _layernorm(hf.layer_norm_eps),
        "placement": Choice("parallel_two" if hf.use_parallel_residual else "pre"),
        "ffn": feedforward_of(hf.hidden_act, gated=False),
        "position": read_rope(
            hf.rope_parameters, head_width=hf.hidden_size // hf.num_attention_heads
        ),
        "attention": choose("attention", "causal", {"bias": bias}),
    }


def _read_llama(hf: Any) -> Fields:
    return {**_read_gated(hf, hf.hidden_act, {}), "placement": Choice("pre")}


def _read_olmo2(hf: Any) -> Fields:
    options = _qk_norm(hf, "model")
    return {**_read_gated(hf, hf.hidden_act, options), "placement": Choice("reordered")}


def _read_qwen3(hf: Any) -> Fields:
    pattern, reach = _read_reaches(hf)
    return {
        **_read_gated(hf, hf.hidden_act, {**_qk_norm(hf, "head"), "window": reach}),
        "placement": Choice("pre"),
        "attention_pattern": pattern,
    }


def _read_gemma2(hf: Any) -> Fields:
    if hf.use_bidirectional_attention:
        raise InputError("use_bidirectional_attention=true is not a causal language model.")
    pattern, reach = _read_reaches(hf)
    scalar = hf.query_pre_attn_scalar
    options = {
        "window": reach,
        "softcap": hf.attn_logit_softcapping,
        "scale": None if scalar == hf.head_dim else scalar**-0.5,
    }
    return {
        **_read_gated(hf, hf.hidden_activation, options),
        "norm": choose("norm", "rmsnorm", {"eps": hf.rms_norm_eps, "offset": True}),
        "placement": Choice("peri"),
        "scale_embeddings": True,
        "logit_softcap": hf.final_logit_softcapping,
        "attention_pattern": pattern,
    }


def _read_bloom(hf: Any) -> Fields:
    _refuse(hf, "apply_residual_connection_post_layernorm")
    # A BloomConfig has no context length; its models were trained with this one.
    context = getattr(hf, "seq_length", 2048)
    return {
        **_read_sizes(hf, 4 * hf.hidden_size, context),
        "bias": True,
        "embedding_norm": True,
        "norm": _layernorm(hf.layer_norm_epsilon),
        "placement": Choice("pre"),
        "ffn": choose("ffn", "gelu", {"approximate": "tanh"}),
        "position": Choice("alibi"),
        "attention": Choice("causal"),
    }


def _read_sizes(hf: Any, width: int, context: int | None = None) -> Fields:
    return {
        **{ours: getattr(hf, theirs) for theirs, ours in _SIZES.items()},
        "context_length": context or hf.max_position_embeddings,
        "d_ff": width,
        "match": "none",
    }


def _read_gated(hf: Any, activation: str, attention: Fields) -> Fields:
    """Return the fields that Llama and the families derived from it share."""
    heads, kv_heads = hf.num_attention_heads, hf.num_key_value_heads
    kind = "causal" if kv_heads == heads else "grouped"
    bias = getattr(hf, "mlp_bias", False)
    options = {"bias": None if hf.attention_bias == bias else hf.attention_bias, **attention}
    if kind == "grouped":
        options["kv_heads"] = kv_heads
    head_width = getattr(hf, "head_dim", None)
    natural = head_width in (None, hf.hidden_size / heads)
    return {
        **_read_sizes(hf, hf.intermediate_size),
        "bias": bias,
        "head_width": None if natural else head_width,
        "norm": choose("norm", "rmsnorm", {"eps": hf.rms_norm_eps}),
        "ffn": feedforward_of(activation, gated=True),
        "position": read_rope(hf.rope_parameters),
        "attention": choose("attention", kind, options),
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


def _scalar(config: ModelConfig) -> int:
    """Return the integer n with ``scale = 1 / sqrt(n)``; an InputError if there is none."""
    scale = option(config, "attention.scale")
    if scale is None:
        return config.width_of_head
    scalar: int = round(scale**-2)
    if scalar < 1 or not math.isclose(scalar**-0.5, scale, rel_tol=1e-9):
        raise InputError(
            f"model.attention.scale={scale:g} is not supported by Gemma 2, which divides scores by "
            "the square root of a whole number."
        )
    return scalar


def _refuse(hf: Any, name: str) -> None:
    if value := getattr(hf, name):
        raise InputError(
            f"{name}={value} is not supported; only models with {name}=False can be loaded."
        )


_GATED: Writers = {
    **_SIZES,
    "max_position_embeddings": "context_length",
    "intermediate_size": "width",
    "num_key_value_heads": kv_heads,
    "attention_bias": attention_bias,
    "rms_norm_eps": "norm.eps",
    "rope_parameters": partial(write_rope, partial=False),
}
FAMILIES: Mapping[str, tuple[Callable[[Any], Fields], Writers]] = {
    "gpt2": (
        _read_gpt2,
        {
            **_SIZES,
            "n_positions": "context_length",
            "n_inner": "width",
            "activation_function": activation_of,
            "layer_norm_epsilon": "norm.eps",
            "scale_attn_weights": lambda config: option(config, "attention.scale") is None,
        },
    ),
    "gpt_neox": (
        _read_gpt_neox,
        {
            **_SIZES,
            "max_position_embeddings": "context_length",
            "intermediate_size": "width",
            "hidden_act": activation_of,
            "layer_norm_eps": "norm.eps",
            "use_parallel_residual": lambda config: config.placement.name == "parallel_two",
            "attention_bias": attention_bias,
            "rope_parameters": partial(write_rope, partial=True),
        },
    ),
    "llama": (
        _read_llama,
        {
            **_GATED,
            "hidden_act": activation_of,
            "head_dim": "width_of_head",
            "mlp_bias": "bias",
        },
    ),
    "olmo2": (_read_olmo2, {**_GATED, "hidden_act": activation_of}),
    "qwen3": (
        _read_qwen3,
        {
            **_GATED,
            "hidden_act": activation_of,
            "head_dim": "width_of_head",
            "use_sliding_window": lambda config: window(config) is not None,
            "sliding_window": window,
            "layer_types": _layer_types,
        },
    ),
    "gemma2": (
        _read_gemma2,
        {
            **_GATED,
            "hidden_activation": activation_of,
            "head_dim": "width_of_head",
            "query_pre_attn_scalar": _scalar,
            "attn_logit_softcapping": "attention.softcap",
            "final_logit_softcapping": "logit_softcap",
            # Gemma2Config needs a window even if no layer uses it.
            "sliding_window": lambda config: window(config) or config.context_length,
            "layer_types": _layer_types,
        },
    ),
    "bloom": (
        _read_bloom,
        {
            **_SIZES,
            "seq_length": "context_length",
            "layer_norm_epsilon": "norm.eps",
        },
    ),
}
"""Every family by its ``model_type``: how its configuration is read, and how it is written."""


def read_config(hf_config: Any) -> ModelConfig:
    """Return our configuration for a Hugging Face configuration.

    Raises:
        InputError: for a class or an option that is not supported.
    """
    kind = hf_config.model_type
    if kind not in FAMILIES:
        raise InputError(
            f"A model of type {kind!r} cannot be loaded; the types that can are "
            f"{', '.join(FAMILIES)}."
        )
    read, _ = FAMILIES[kind]
    return ModelConfig(**read(hf_config))


def write_config(kind: str, config: ModelConfig) -> Any:
    """Return the Hugging Face configuration of a family for ours, without special tokens."""
    _, sources = FAMILIES[kind]
    fields = {
        name: source(config) if callable(source) else option(config, source)
        for name, source in sources.items()
    }
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return AutoConfig.for_model(kind, **fields, **special)
