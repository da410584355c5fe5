"""Options of a model configuration with defaults filled in."""

from __future__ import annotations

import dataclasses
from typing import Any

from lm_experiments.model import AXES, Choice, ModelConfig, sketch_model
from lm_experiments.registry import component


def option(config: ModelConfig, path: str) -> Any:
    """Return a value by its path below ``model``, such as ``bias``, ``norm`` or ``norm.eps``.

    An axis gives the name of its component. An option that the component lacks gives None.
    """
    axis, _, name = path.partition(".")
    if axis not in AXES:
        return getattr(config, axis)
    choice = getattr(config, axis)
    return options_of(axis, choice).get(name) if name else choice.name


def options_of(axis: str, choice: Choice) -> dict[str, Any]:
    """Return the options of a component, with defaults filled in."""
    options = component(axis, choice.name).options() if choice.options is None else choice.options
    return dataclasses.asdict(options)


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
