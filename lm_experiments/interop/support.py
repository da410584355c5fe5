"""What each Hugging Face family supports, and which family fits a model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.fields import Use, fields_of
from lm_experiments.interop.activations import GATED, UNGATED
from lm_experiments.interop.options import kv_heads, option, window
from lm_experiments.model import AXES, ModelConfig
from lm_experiments.model.init import multipliers
from lm_experiments.model.positions import RoPEOptions
from lm_experiments.registry import plain_choice

# The allowed values of a choice, or a function that returns them. ANY allows all values.
Allowed = tuple[Any, ...] | Callable[[ModelConfig], tuple[Any, ...]]
ANY: tuple[Any, ...] = ("*",)
NO: tuple[Any, ...] = (None,)

# Options that do not change what a trained model computes for one document. Of the others, `width`
# says what `ffn_width` and all that it is solved from amount to.
FREE = {
    *(field.name for field in fields_of(ModelConfig) if field.use is not Use.RESULT),
    "dropout",
    "z_loss",
    "document_mask",
    "ffn_width",
}

# What every family supports, unless overridden below.
COMMON: Mapping[str, Allowed] = {
    **dict.fromkeys(("d_model", "n_layers", "n_heads", "context_length", "width"), ANY),
    **dict.fromkeys(("tie_embeddings", "bias", "norm.eps", "ffn.approximate"), ANY),
    **dict.fromkeys(("attention.qk_norm_width", "attention.qk_norm_eps", "attention.bias"), ANY),
    **dict.fromkeys(("attention.window", "attention.softcap", "attention.scale"), NO),
    "head_width": lambda c: (c.d_model // c.n_heads,),
    "scale_embeddings": (False,),
    "embedding_norm": (False,),
    "logit_softcap": NO,
    "position_pattern": NO,
    "attention_pattern": NO,
    "norm.offset": (False,),
    "attention": ("causal", "grouped", "multi_query", "sliding"),
    "attention.kv_heads": lambda c: (c.n_heads,),
    "attention.qk_norm": ("none",),
    "init": lambda c: (c.init.name,) if _has_no_multipliers(c) else ("no multipliers",),
}
_LAYERNORM: Mapping[str, Allowed] = {
    "norm": ("layernorm", "layernorm_plain"),
    # Hugging Face's LayerNorm has both; a missing one is written as ones or zeros.
    "norm.gain": ANY,
    "norm.shift": ANY,
}
_ROPE: Mapping[str, Allowed] = {
    "position": ("rope",),
    **{f"position.{field.name}": ANY for field in fields_of(RoPEOptions)},
    "position.fraction": (1.0,),
}
_GATED: Mapping[str, Allowed] = {
    **_ROPE,
    "norm": ("rmsnorm",),
    "ffn": GATED,
    "attention.kv_heads": ANY,
}
FAMILIES: Mapping[str, Mapping[str, Allowed]] = {
    "gpt2": {
        **_LAYERNORM,
        "placement": ("pre",),
        "ffn": UNGATED,
        "position": ("learned",),
        "attention.scale": (None, 1.0),
    },
    "gpt_neox": {
        **_LAYERNORM,
        **_ROPE,
        "placement": ("parallel_two", "pre"),
        "ffn": UNGATED,
        "position.fraction": ANY,
    },
    "llama": {**_GATED, "placement": ("pre",), "head_width": ANY},
    "olmo2": {
        **_GATED,
        "placement": ("reordered",),
        "bias": (False,),
        "attention.qk_norm": ("rmsnorm",),
        "attention.qk_norm_width": ("model",),
        "attention.qk_norm_eps": lambda c: (option(c, "norm.eps"),),
    },
    "qwen3": {
        **_GATED,
        "placement": ("pre",),
        "bias": (False,),
        "head_width": ANY,
        "attention.qk_norm": ("rmsnorm",),
        "attention.qk_norm_width": ("head",),
        "attention.qk_norm_eps": lambda c: (option(c, "norm.eps"),),
        "attention.window": ANY,
        "attention_pattern": ANY,
    },
    "gemma2": {
        **_GATED,
        "norm.offset": (True,),
        "placement": ("peri",),
        "bias": (False,),
        "head_width": ANY,
        "scale_embeddings": (True,),
        "logit_softcap": ANY,
        "attention.window": ANY,
        "attention.softcap": ANY,
        "attention.scale": ANY,
        "attention_pattern": ANY,
    },
    "bloom": {
        **_LAYERNORM,
        "embedding_norm": (True,),
        "placement": ("pre",),
        "ffn": ("gelu",),
        "ffn.approximate": ("tanh",),
        "width": lambda c: (4 * c.d_model,),
        "position": ("alibi",),
    },
}


def fitting_family(config: ModelConfig) -> str:
    """Return the first family that supports all choices of a model.

    Raises:
        InputError: if none does, with the unsupported choices of the closest families.
    """
    misfits = {name: _misfits(config, allowed) for name, allowed in FAMILIES.items()}
    fewest = min(map(len, misfits.values()))
    nearest = {name: wrong for name, wrong in misfits.items() if len(wrong) == fewest}
    if not fewest:
        return next(iter(nearest))
    reasons = "; ".join(f"{name} lacks {', '.join(wrong)}" for name, wrong in nearest.items())
    raise InputError(f"No supported class of transformers fits this model: {reasons}.")


def choices(config: ModelConfig) -> dict[str, Any]:
    """Return all choices by their path below ``model``, with defaults filled in."""
    found: dict[str, Any] = {"width": config.width}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in AXES:
            options = plain_choice(field.name, value)
            found[field.name] = options.pop("name")
            found |= {f"{field.name}.{key}": chosen for key, chosen in options.items()}
        else:
            found[field.name] = value
    return found | {
        "head_width": config.width_of_head,
        "attention.kv_heads": kv_heads(config),
        "attention.window": window(config),
    }


def _misfits(config: ModelConfig, family: Mapping[str, Allowed]) -> list[str]:
    """Return the choices that a family does not support, each with the values it supports."""
    supported, wrong = {**COMMON, **family}, {}
    for path, value in choices(config).items():
        allowed = supported.get(path, ("nothing alike",))
        allowed = allowed(config) if callable(allowed) else allowed
        if path in FREE or path.startswith("init.") or allowed is ANY or value in allowed:
            continue
        typed = path if path in AXES else f"model.{path}"
        wrong[path] = f"{typed}={_word(value)} (it has {', '.join(map(_word, allowed))})"
    # The options of an unsupported component need not be listed.
    return [
        text for path, text in wrong.items() if "." not in path or path.split(".")[0] not in wrong
    ]


def _has_no_multipliers(config: ModelConfig) -> bool:
    """Whether the init scheme leaves scores and logits unscaled, like muP at its base width."""
    factors = multipliers(config)
    return math.isclose(factors.logits, 1) and math.isclose(factors.attention_scale, 1)


def _word(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)
