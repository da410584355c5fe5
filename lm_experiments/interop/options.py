"""Options of a model configuration with defaults filled in."""

from __future__ import annotations

from typing import Any

from lm_experiments.model import AXES, ModelConfig, sketch_model
from lm_experiments.registry import plain_choice


def option(config: ModelConfig, path: str) -> Any:
    """Return a value by its path below ``model``, such as ``bias``, ``norm`` or ``norm.eps``.

    An axis gives the name of its component. An option that the component lacks gives None.
    """
    axis, _, name = path.partition(".")
    if axis not in AXES:
        return getattr(config, axis)
    return plain_choice(axis, getattr(config, axis)).get(name or "name")


def attention_bias(config: ModelConfig) -> bool:
    """Return whether the projections of attention have biases."""
    own = option(config, "attention.bias")
    return bool(config.bias if own is None else own)


def kv_heads(config: ModelConfig) -> int | None:
    """Return the number of key-value heads, None if the attention does not have any."""
    return getattr(sketch_model(config).blocks[0].attention, "kv_heads", None)


def window(config: ModelConfig) -> int | None:
    """Return the window of the local layers, None if there is none."""
    blocks = sketch_model(config).blocks
    windows = [getattr(block.attention, "window", None) for block in blocks]
    return next((reach for reach in windows if reach is not None), None)
