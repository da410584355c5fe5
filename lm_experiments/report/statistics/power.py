"""Statistical power: the smallest difference that a number of seeds resolves."""

from __future__ import annotations

import math

POWER = 0.8
ALPHA = 0.05


def smallest_resolvable(
    sd_difference: float,
    n: int,
    power: float = POWER,
    alpha: float = ALPHA,
    degrees: float | None = None,
) -> float | None:
    """The smallest true difference a two-sided paired t test over n seeds finds with `power`.

    `sd_difference` is the standard deviation of the paired differences, in the unit of the
    result; `degrees` are the test's degrees of freedom where these are not n - 1. For a family of
    k contrasts pass alpha / k, the first and hardest step of Holm's. None below two seeds, which
    resolve nothing. Raises `ValueError` for a spread that is negative or not finite, and for a
    power or alpha out of range.
    """
    if not 0 <= sd_difference < math.inf:
        raise ValueError(
            f"A spread of {sd_difference!r} is not finite and zero or more; give an sd."
        )
    if not 0 < alpha < power < 1:
        raise ValueError(
            f"Power {power!r} at alpha {alpha!r} cannot be asked for; write 0 < alpha < power < 1, "
            "such as 0.8 at 0.05."
        )
    if n < 2:
        return None
    # Imported here because scipy is slow to load.
    from scipy.optimize import brentq

    def _lacking(shift: float) -> float:
        return _power(shift, degrees or n - 1, alpha) - power

    high = 1.0
    while _lacking(high) < 0:
        high *= 2
    shift = float(brentq(_lacking, 0.0, high, xtol=1e-12, rtol=1e-12))
    return shift * sd_difference / math.sqrt(n)


def _power(shift: float, degrees: float, alpha: float) -> float:
    """P(|T| > critical value) for a noncentral t with this noncentrality."""
    import numpy as np
    from scipy.special import gammainc, stdtrit

    # T is (shift + Z) / S; given Z, the chi-square under S has a closed distribution function.
    # scipy's own noncentral t (1.17) returns NaN at scattered points from a shift of 5 on.
    critical = stdtrit(degrees, 1 - alpha / 2)
    normal = np.linspace(-8.0, 8.0, 1001)
    weights = np.exp(-(normal**2) / 2)
    below = gammainc(degrees / 2, degrees * ((shift + normal) / critical) ** 2 / 2)
    return float(weights @ below / weights.sum())
