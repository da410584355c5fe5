"""Feed-forwards by the names of their activations in `transformers`."""

from __future__ import annotations

from lm_experiments.errors import InputError
from lm_experiments.interop.options import option
from lm_experiments.model import Choice, ModelConfig, choose

# (our feed-forward, its approximation) -> the names of its activation, the first for export.
_Names = dict[tuple[str, str | None], tuple[str, ...]]
_TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")
_UNGATED: _Names = {
    ("gelu", "none"): ("gelu",),
    ("gelu", "tanh"): _TANH,
    ("relu", None): ("relu",),
    ("silu", None): ("silu", "swish"),
    ("relu2", None): ("relu2",),
}
_GATED: _Names = {
    ("geglu", "none"): ("gelu",),
    ("geglu", "tanh"): _TANH,
    ("swiglu", None): ("silu", "swish"),
    ("reglu", None): ("relu",),
    ("glu", None): ("sigmoid",),
    ("bilinear", None): ("linear",),
}
UNGATED, GATED = (tuple(dict.fromkeys(name for name, _ in t)) for t in (_UNGATED, _GATED))


def activation_of(config: ModelConfig) -> str:
    """Return the Hugging Face activation name of a feed-forward of `UNGATED` or `GATED`."""
    return {**_UNGATED, **_GATED}[config.ffn.name, option(config, "ffn.approximate")][0]


def feedforward_of(activation: str, *, gated: bool) -> Choice:
    """Return the feed-forward with this activation, or raise an InputError."""
    table = _GATED if gated else _UNGATED
    for (name, approximate), names in table.items():
        if activation in names:
            return choose("ffn", name, {"approximate": approximate} if approximate else {})
    known = [name for names in table.values() for name in names]
    raise InputError(
        f"The activation {activation!r} is not supported; it can be {', '.join(known)}."
    )
