"""RoPE frequencies, and their scaling for contexts longer than trained.

Everything is computed in float64; tables are rounded to float32 once.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from lm_experiments.model.checks import check_choice


def geometric(pairs: int, width: int, theta: float) -> Tensor:
    """Return the frequencies ``theta^(-2k / width)``, k from 0: (pairs,), float64."""
    exponents = torch.arange(pairs, dtype=torch.float64) * (-2.0 / width)
    return torch.pow(torch.tensor(theta, dtype=torch.float64), exponents)


def angles(length: int, frequencies: Tensor) -> Tensor:
    """Return position times frequency, (length, pairs), float64."""
    return torch.outer(torch.arange(length, dtype=torch.float64), frequencies)


def _none(columns: int, theta: float) -> Tensor:
    return geometric(columns // 2, columns, theta)


def _linear(columns: int, theta: float, factor: float) -> Tensor:
    """Position interpolation (Chen et al. 2023)."""
    return _none(columns, theta) / factor


def _ntk(columns: int, theta: float, factor: float) -> Tensor:
    """A larger theta: the highest frequency stays, the lowest is divided by ``factor``."""
    if columns < 4:
        raise ValueError(
            "model.position.scaling=ntk needs at least two pairs of rotated columns; type "
            "model.position.scaling=linear."
        )
    return _none(columns, theta * factor ** (columns / (columns - 2)))


def _yarn(
    columns: int,
    theta: float,
    factor: float,
    original_context: float,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
) -> Tensor:
    """Scale only pairs with few rotations within the original context (Peng et al. 2023).

    Between ``beta_slow`` and ``beta_fast`` rotations there is a ramp. It is linear in the index of
    the pair as in the authors' code; in the paper it is linear in the number of rotations.
    """
    if theta <= 1:
        raise ValueError(
            f"model.position.scaling=yarn needs a model.position.theta above 1, not {theta:g}; "
            "type for example model.position.theta=10000."
        )

    def _pair_with(rotations: float) -> float:
        ratio = original_context / (rotations * 2 * math.pi)
        return columns * math.log(ratio) / (2 * math.log(theta))

    first = max(math.floor(_pair_with(beta_fast)), 0)
    last = min(math.ceil(_pair_with(beta_slow)), columns - 1)
    index = torch.arange(columns // 2, dtype=torch.float64) - first
    ramp = (index / (last - first or 0.001)).clamp(0, 1)
    plain = _none(columns, theta)
    return plain * (1 - ramp) + plain / factor * ramp


def _llama3(
    columns: int,
    theta: float,
    factor: float,
    original_context: float,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
) -> Tensor:
    """Scale pairs with fewer than ``low_freq_factor`` rotations, with a ramp up to the other limit.

    Rotations are those within the original context (Grattafiori et al. 2024 and reference code).
    """
    plain = _none(columns, theta)
    rotations = original_context * plain / (2 * math.pi)
    kept = ((rotations - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return plain * kept + plain / factor * (1 - kept)


SCALINGS: Mapping[str, Callable[..., Tensor]] = {
    "none": _none,
    "linear": _linear,
    "ntk": _ntk,
    "yarn": _yarn,
    "llama3": _llama3,
}
EXAMPLES = {"factor": "4", "original_context": "2048"}
# In each pair, the first option must be below the second.
ORDERED = (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast"))


def scaled_frequencies(
    name: str, given: Mapping[str, float | None], columns: int, theta: float
) -> Tensor:
    """Return the frequencies (columns / 2,) in float64.

    Args:
        name: one of `SCALINGS`.
        given: every option of every scaling; None if not given.
        columns: the number of rotated columns.
        theta: the base of the wavelengths.

    Raises:
        ValueError: for an unknown name, and for options that are missing, unused or out of range.
    """
    check_choice("model.position.scaling", name, SCALINGS)
    return SCALINGS[name](columns, theta, **_checked(name, given))


def scaling_options(name: str) -> dict[str, float | None]:
    """Return the options of a scaling with their defaults, None if required."""
    _, _, *options = inspect.signature(SCALINGS[name]).parameters.values()
    return {o.name: None if o.default is o.empty else o.default for o in options}


def yarn_magnitude(factor: float) -> float:
    """Return the factor on queries and keys, sqrt(1/t) in Peng et al. 2023."""
    return 0.1 * math.log(factor) + 1


def _checked(name: str, given: Mapping[str, float | None]) -> dict[str, float]:
    reads = scaling_options(name)
    for option, value in given.items():
        if value is not None and option not in reads:
            readers = [other for other in SCALINGS if option in scaling_options(other)]
            raise ValueError(
                f"model.position.{option}={value:g} is not read by model.position.scaling={name}; "
                f"leave it out, or choose a scaling that reads it: {', '.join(readers)}."
            )
    values = {}
    for option, default in reads.items():
        value = default if given[option] is None else given[option]
        if value is None:
            raise ValueError(
                f"model.position.scaling={name} needs model.position.{option}; type for example "
                f"model.position.{option}={EXAMPLES[option]}."
            )
        values[option] = value
    _check_values(values)
    return values


def _check_values(values: Mapping[str, float]) -> None:
    for option, value in values.items():
        least = 1 if option in EXAMPLES else 0
        if not least <= value < math.inf or value == 0:
            allowed = "1 or more" if least else "above 0"
            raise ValueError(f"model.position.{option}={value:g} must be a number, {allowed}.")
    for low, high in ORDERED:
        if low in values and values[low] >= values[high]:
            raise ValueError(
                f"model.position.{low}={values[low]:g} must be below "
                f"model.position.{high}={values[high]:g}."
            )
