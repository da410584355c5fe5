"""Means, spreads and paired differences over seeds, with Student-t intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """The mean of n values, in their unit; `sd` and `half_width` are None when n is 1."""

    mean: float
    sd: float | None
    n: int
    half_width: float | None


def summarize(values: Iterable[float]) -> Summary | None:
    """Mean, standard deviation (ddof 1) and 95 % t half-width; None when there are no values."""
    numbers = list(values)
    n = len(numbers)
    if n == 0:
        return None
    mean = math.fsum(numbers) / n
    if n == 1:
        return Summary(mean, None, 1, None)
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in numbers) / (n - 1))
    return Summary(mean, sd, n, t_quantile(n - 1) * sd / math.sqrt(n))


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Summary | None:
    """Summarise `values - baseline` over the seeds both have; None when they share no seed."""
    common = sorted(values.keys() & baseline.keys())
    return summarize(values[seed] - baseline[seed] for seed in common)


def t_quantile(degrees: int) -> float:
    """The two-sided 95 % point of Student's t with this many degrees of freedom."""
    # Imported here because scipy is slow to load.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2))
