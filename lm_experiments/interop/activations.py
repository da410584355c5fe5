"""Feed-forwards by the names that `transformers` has for their activations."""

from __future__ import annotations

from lm_experiments.errors import InputError
from lm_experiments.interop.options import option
from lm_experiments.model import Choice, ModelConfig, choose

# The first name is the one that is written.
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


def activation_of(ours: ModelConfig) -> str:
    """Return the activation's name of theirs for a feed-forward of `UNGATED` or `GATED`."""
    if ours.ffn.name in ("gelu", "geglu"):
        return _GELU[option(ours, "ffn.approximate")][0]
    return {**_UNGATED, **_GATED}[ours.ffn.name][0]


def ungated_of(activation: str) -> Choice:
    """Return the ungated feed-forward with this activation of theirs.

    Raises:
        InputError: where there is none.
    """
    return _choice("gelu", _UNGATED, activation)


def gated_of(activation: str) -> Choice:
    """Return the gated feed-forward with this activation of theirs.

    Raises:
        InputError: where there is none.
    """
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
        f"The activation {activation!r} has no counterpart here; it can be {', '.join(known)}."
    )
