"""Estimated differences with standard errors, for one study or for many studies at once.

All arrays end in an axis of arms; leading axes are studies, so a simulation of thousands of
studies runs the same code as one table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from lm_experiments.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimates:
    """Mean differences in nats per token, with standard errors and degrees of freedom.

    Each field has the shape (..., arms). A missing arm is NaN in all of them.
    """

    mean: Array
    error: Array
    degrees: Array

    def p(self) -> Array:
        """The two-sided p of a t test against no difference; 1 for a missing arm."""
        return np.minimum(1.0, 2 * self._upper_tail(np.abs(self.mean)))

    def p_within(self, margin: float) -> Array:
        """The p of two one-sided t tests against +-margin (Schuirmann 1987); 1 where missing."""
        check_margin(margin)
        return self._upper_tail(margin - np.abs(self.mean))

    def interval(self, confidence: float | Array = 0.95) -> tuple[Array, Array]:
        """The lower and upper ends of the t interval of each arm."""
        half = stdtrit(self.degrees, 0.5 + confidence / 2) * self.error
        return self.mean - half, self.mean + half

    def _upper_tail(self, gap: Array) -> Array:
        """The p of `gap` or more above the null value; 1 for a missing arm."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where((self.error == 0) & (gap <= 0), -np.inf, gap / self.error)
        return np.where(np.isnan(t), 1.0, stdtr(self.degrees, -t))


def plain_t(differences: Array) -> Estimates:
    """The paired t statistics of differences of shape (..., arms, seeds).

    Assumes normal differences that are independent between seeds; each arm has its own spread.
    An arm with a NaN is missing. Raises `InputError` for fewer than two seeds.
    """
    mean, variance, degrees = mean_and_variance(differences)
    return Estimates(mean, np.sqrt(variance / (degrees + 1)), np.full(mean.shape, float(degrees)))


def mean_and_variance(differences: Array) -> tuple[Array, Array, int]:
    """Means and variances (ddof 1) over the last axis, and the degrees of freedom."""
    seeds = differences.shape[-1]
    if seeds < 2:
        raise InputError(f"A paired t test needs two seeds or more, not {seeds}; add seeds.")
    return differences.mean(axis=-1), differences.var(axis=-1, ddof=1), seeds - 1


def check_margin(margin: float) -> None:
    """Raise `InputError` unless the equivalence margin is finite and above zero."""
    if not 0 < margin < np.inf:
        raise InputError(
            f"The equivalence margin is {margin!r}; write a finite number of nats per token above "
            "zero, such as 0.01, or leave it out."
        )


def holm_adjusted(p_values: Array) -> Array:
    """Holm's step-down adjusted p-values (Holm 1979) over the last axis, at most 1.

    Controls the family-wise error under any dependence. Raises `InputError` for a value that
    is no probability; give 1 for a hypothesis that could not be tested.
    """
    if not np.all((p_values >= 0) & (p_values <= 1)):
        raise InputError("A p-value is outside 0 to 1; give 1 for a test that was not possible.")
    order = np.argsort(p_values, axis=-1, kind="stable")
    count = p_values.shape[-1]
    scaled = np.take_along_axis(p_values, order, axis=-1) * np.arange(count, 0, -1)
    ordered = np.minimum(1.0, np.maximum.accumulate(scaled, axis=-1))
    adjusted = np.empty_like(ordered)
    np.put_along_axis(adjusted, order, ordered, axis=-1)
    return adjusted
