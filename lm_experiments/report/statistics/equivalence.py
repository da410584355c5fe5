"""Equivalence of arms to their reference: two one-sided tests, adjusted over the family."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lm_experiments.report.statistics.estimates import (
    Array,
    Estimates,
    check_margin,
    holm_adjusted,
)


@dataclass(frozen=True)
class Equivalence:
    """Whether each arm's difference lies within the margin; all arrays have shape (..., arms).

    `p` is the larger p of the two one-sided tests and `adjusted_p` is Holm's over the family.
    `low` and `high` bound the interval that decides: an arm is equivalent exactly when it lies
    within +-margin. For a single arm at level .05 it is the 90 % interval; in a family its
    `confidence` is higher, as Holm tests the arm at a smaller level.
    """

    p: Array
    adjusted_p: Array
    equivalent: NDArray[np.bool_]
    confidence: Array
    low: Array
    high: Array


def equivalence(estimates: Estimates, margin: float, level: float = 0.05) -> Equivalence:
    """Test every arm for |difference| < margin (TOST, Schuirmann 1987), Holm-adjusted.

    The probability of calling any arm equivalent whose true difference is the margin or more is
    at most `level`, however many arms there are. `margin` is in nats per token. A missing (NaN)
    arm counts in the family with p = 1. Raises `InputError` for a margin that is not above zero.
    """
    check_margin(margin)
    p = estimates.p_within(margin)
    adjusted = holm_adjusted(p)
    equivalent = adjusted <= level
    confidence = 1 - 2 * level / divisors(p, equivalent)
    low, high = estimates.interval(confidence)
    return Equivalence(p, adjusted, equivalent, confidence, low, high)


def divisors(p: Array, equivalent: NDArray[np.bool_]) -> Array:
    """What Holm divides the level by at each arm: its own step, or the step that stopped."""
    count = p.shape[-1]
    order = np.argsort(p, axis=-1, kind="stable")
    step = np.empty(p.shape)
    np.put_along_axis(step, order, np.broadcast_to(np.arange(count, 0.0, -1), p.shape), axis=-1)
    still_open = count - equivalent.sum(axis=-1, keepdims=True)
    return np.where(equivalent, step, still_open)
