"""What a study could have seen: the smallest difference its seeds resolve, the seeds it needs."""

from __future__ import annotations

import math

import numpy as np

POWER = 0.8
ALPHA = 0.05
MOST_SEEDS = 10_000
_NORMAL = np.linspace(-8.0, 8.0, 1001)
_WEIGHTS = np.exp(-(_NORMAL**2) / 2)
_WEIGHTS /= _WEIGHTS.sum()


def smallest_resolvable(
    sd_difference: float, n: int, power: float = POWER, alpha: float = ALPHA
) -> float | None:
    """The smallest true difference a two-sided paired t test over n seeds finds with `power`.

    `sd_difference` is the standard deviation of the paired differences, in the unit of the
    result. For a family of k contrasts pass alpha / k, the first and hardest step of Holm's.
    None below two seeds, which resolve nothing. Raises `ValueError` for a spread that is
    negative or not finite, and for a power or alpha out of range.
    """
    _check(sd_difference, power, alpha)
    if n < 2:
        return None
    shift = _bisect_shift(n - 1, power, alpha)
    return shift * sd_difference / math.sqrt(n)


def resolvable_from_baseline(
    sd_baseline: float, n: int, power: float = POWER, alpha: float = ALPHA
) -> float | None:
    """`smallest_resolvable` when only the baseline's spread over seeds is known.

    Takes the arm to vary as much as the baseline and independently of it, so that differences
    have sd_baseline * sqrt(2). Arms which share batches and initial tensors usually vary
    together, and then the study resolves somewhat less than this: the figure is a cautious one.
    """
    return smallest_resolvable(math.sqrt(2) * sd_baseline, n, power, alpha)


def seeds_needed(sd_over_delta: float, power: float = POWER, alpha: float = ALPHA) -> int:
    """The fewest seeds with which a paired t test finds a difference delta with `power`.

    `sd_over_delta` is the sd of the paired differences over the true difference. Raises
    `ValueError` for one that is negative, not finite, or takes more than 10,000 seeds.
    """
    _check(sd_over_delta, power, alpha)
    low, high = 1, 2
    while not _finds(sd_over_delta, high, power, alpha):
        if high >= MOST_SEEDS:
            raise ValueError(
                f"A spread of {sd_over_delta:g} times the difference takes more than "
                f"{MOST_SEEDS:,} seeds; ask for a larger difference."
            )
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        found = _finds(sd_over_delta, middle, power, alpha)
        low, high = (low, middle) if found else (middle, high)
    return high


def _finds(sd_over_delta: float, n: int, power: float, alpha: float) -> bool:
    if sd_over_delta == 0:
        return True
    return _power(math.sqrt(n) / sd_over_delta, n - 1, alpha) >= power


def _power(shift: float, degrees: int, alpha: float) -> float:
    """P(|T| > critical value) for a noncentral t with this noncentrality."""
    from scipy.special import gammainc, stdtrit

    # T is (shift + Z) / S; given Z, the chi-square under S has a closed distribution function.
    # scipy's own noncentral t (1.17) returns NaN at scattered points from a shift of 5 on.
    critical = stdtrit(degrees, 1 - alpha / 2)
    below = gammainc(degrees / 2, degrees * ((shift + _NORMAL) / critical) ** 2 / 2)
    return float(_WEIGHTS @ below)


def _bisect_shift(degrees: int, power: float, alpha: float) -> float:
    low, high = 0.0, 1.0
    while _power(high, degrees, alpha) < power:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        found = _power(middle, degrees, alpha) >= power
        low, high = (low, middle) if found else (middle, high)
    return high


def _check(spread: float, power: float, alpha: float) -> None:
    if not 0 <= spread < math.inf:
        raise ValueError(f"A spread of {spread!r} is not finite and zero or more; give an sd.")
    if not 0 < alpha < power < 1:
        raise ValueError(
            f"Power {power!r} at alpha {alpha!r} cannot be asked for; write 0 < alpha < power < 1, "
            "such as 0.8 at 0.05."
        )
