"""Conversion of RoPE options from and to Hugging Face's ``rope_parameters``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.interop.options import option
from lm_experiments.model import Choice, ModelConfig, choose
from lm_experiments.model.positions.rope import rotated_columns
from lm_experiments.model.positions.scaling import scaling_options

# Hugging Face's name of a scaling -> our name, and our names of its parameters.
_LENGTH = {"factor": "factor", "original_max_position_embeddings": "original_context"}
_SCALINGS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "default": ("none", {}),
    "linear": ("linear", {"factor": "factor"}),
    "yarn": ("yarn", {**_LENGTH, "beta_fast": "beta_fast", "beta_slow": "beta_slow"}),
    "llama3": (
        "llama3",
        {
            **_LENGTH,
            "low_freq_factor": "low_freq_factor",
            "high_freq_factor": "high_freq_factor",
        },
    ),
}
_KNOWN = ("rope_type", "type", "rope_theta", "partial_rotary_factor")


def read_rope(parameters: Mapping[str, Any], *, head_width: int | None = None) -> Choice:
    """Return our position encoding for ``rope_parameters``.

    Args:
        parameters: the ``rope_parameters`` of a loaded configuration.
        head_width: of a family that uses ``partial_rotary_factor``; None if the whole head rotates.

    Raises:
        InputError: for a scaling, a parameter or a number of columns that is not supported.
    """
    kind = parameters["rope_type"]
    if kind not in _SCALINGS:
        raise InputError(f"rope_type={kind!r} is not supported; it can be {', '.join(_SCALINGS)}.")
    scaling, names = _SCALINGS[kind]
    given = {key: value for key, value in parameters.items() if value is not None}
    options = {names[key]: value for key, value in given.items() if key in names}
    for key in given:
        if key not in names and key not in _KNOWN:
            _check_default(key, given)
    fraction = 1.0 if head_width is None else _fraction(parameters, head_width)
    if not fraction:
        return Choice("none")
    own = {"theta": parameters["rope_theta"], "fraction": fraction, "pairing": "half"}
    return choose("position", "rope", {**own, "scaling": scaling, **options})


def write_rope(config: ModelConfig, *, partial: bool) -> dict[str, Any]:
    """Return the ``rope_parameters`` for our RoPE options.

    NTK-aware scaling by a fixed factor is written as a larger theta.
    """
    theta, scaling = option(config, "position.theta"), option(config, "position.scaling")
    rotated = rotated_columns(option(config, "position.fraction"), config.width_of_head)
    fraction = rotated / config.width_of_head
    if int(config.width_of_head * fraction) != rotated:
        # transformers rounds the number of columns down.
        fraction = math.nextafter(fraction, 1)
    own = {"partial_rotary_factor": fraction} if partial else {}
    if scaling == "ntk":
        theta *= option(config, "position.factor") ** (rotated / (rotated - 2))
        scaling = "none"
    kind = next(kind for kind, (name, _) in _SCALINGS.items() if name == scaling)
    defaults = scaling_options(scaling)
    given = {
        theirs: option(config, f"position.{name}") or defaults[name]
        for theirs, name in _SCALINGS[kind][1].items()
    }
    return {"rope_type": kind, "rope_theta": float(theta), **own, **given}


def before_version_5(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``rope_parameters`` as the keys that transformers read before version 5."""
    theta, share = parameters["rope_theta"], parameters.get("partial_rotary_factor")
    # The names of GPT-NeoX, the only family with such a factor.
    own = {} if share is None else {"rotary_emb_base": theta, "rotary_pct": share}
    scaled = None if parameters["rope_type"] == "default" else dict(parameters)
    return {"rope_theta": theta, "rope_scaling": scaled, **own}


def _fraction(parameters: Mapping[str, Any], head_width: int) -> float:
    """Return the fraction of a head's columns that rotates, as transformers rounds it down."""
    share = parameters.get("partial_rotary_factor", 1.0)
    columns = int(head_width * share)
    if columns % 2 or not 0 <= columns <= head_width:
        raise InputError(
            f"partial_rotary_factor={share:g} rotates {columns} of the {head_width} columns of a "
            f"head; only models with an even number up to {head_width} can be loaded."
        )
    return columns / head_width


def _check_default(key: str, parameters: Mapping[str, Any]) -> None:
    """Raise an InputError for an unsupported parameter, unless it has the value that we use."""
    value = parameters[key]
    if key == "truncate" and value is True:
        return
    temperature = 0.1 * math.log(parameters.get("factor", 1.0)) + 1.0
    if key == "attention_factor" and math.isclose(value, temperature, rel_tol=1e-9):
        return
    raise InputError(
        f"rope_parameters: {key}={value} is not supported; only models without it can be loaded."
    )
