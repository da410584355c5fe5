"""Feed-forwards by the names of their activations in `transformers`."""

from __future__ import annotations

from lm_experiments.errors import InputError
from lm_experiments.interop.options import option
from lm_experiments.model import Choice, ModelConfig, choose

# The first name is used for export.
_GELU = {"none": ("gelu",), "tanh": ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")}
_UNGATED = {"relu": ("relu",), "silu": ("silu", "swish"), "relu2": ("relu2",)}
_GATED = {
    "swiglu": ("silu", "swish"),
    "reglu": ("relu",),
    "glu": ("sigmoid",),
    "bilinear": ("linear",),
}
UNGATED = ("gelu", *_UNGATED)
GATED = ("geglu", *_GATED)


def activation_of(config: ModelConfig) -> str:
    """Return the Hugging Face activation name of a feed-forward of `UNGATED` or `GATED`."""
    if config.ffn.name in ("gelu", "geglu"):
        return _GELU[option(config, "ffn.approximate")][0]
    return {**_UNGATED, **_GATED}[config.ffn.name][0]


def ungated_of(activation: str) -> Choice:
    """Return the ungated feed-forward with this activation, or raise an InputError."""
    return _choice("gelu", _UNGATED, activation)


def gated_of(activation: str) -> Choice:
    """Return the gated feed-forward with this activation, or raise an InputError."""
    return _choice("geglu", _GATED, activation)


def _choice(gelu: str, others: dict[str, tuple[str, ...]], activation: str) -> Choice:
    for approximate, names in _GELU.items():
        if activation in names:
            return choose("ffn", gelu, {"approximate": approximate})
    for name, names in others.items():
        if activation in names:
            return Choice(name)
    known = [name for names in (*_GELU.values(), *others.values()) for name in names]
    raise InputError(
        f"The activation {activation!r} is not supported; it can be {', '.join(known)}."
    )
