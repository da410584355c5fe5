"""What a configuration of ours has in force: options at their defaults, heads, biases."""

from __future__ import annotations

import dataclasses
from typing import Any

from lm_experiments.model import AXES, Choice, ModelConfig, sketch_model
from lm_experiments.registry import component


def option(ours: ModelConfig, path: str) -> Any:
    """Return a value by its path below ``model``: ``bias``, ``norm``, ``norm.eps``.

    The value of an axis is the name of its component, that of an option a component does not have
    is None.
    """
    axis, _, name = path.partition(".")
    if axis not in AXES:
        return getattr(ours, axis)
    choice = getattr(ours, axis)
    return options_of(axis, choice).get(name) if name else choice.name


def options_of(axis: str, choice: Choice) -> dict[str, Any]:
    """Return the options of a chosen component, as they are in force."""
    options = component(axis, choice.name).options() if choice.options is None else choice.options
    return dataclasses.asdict(options)


def attention_bias(ours: ModelConfig) -> bool:
    """Return whether the projections of attention have biases."""
    own = option(ours, "attention.bias")
    return bool(ours.bias if own is None else own)


def kv_heads(ours: ModelConfig) -> int | None:
    """Return how many heads of keys and values there are; None where that means nothing."""
    return getattr(sketch_model(ours).blocks[0].attention, "kv_heads", None)


def window(ours: ModelConfig) -> int | None:
    """Return the window of the local layers, None where attention has none."""
    blocks = sketch_model(ours).blocks
    windows = [getattr(block.attention, "window", None) for block in blocks]
    return next((reach for reach in windows if reach is not None), None)
