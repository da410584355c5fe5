"""How far two rankings of arms agree, with the interval that the seeds give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from lm_experiments.report.statistics.contrasts import summarize
from lm_experiments.rundir.study import FEWEST_SEEDS


def kendall_tau(values: Sequence[float], others: Sequence[float]) -> float:
    """Kendall's rank correlation, tau-b, which allows for ties; 0 where one side is all ties."""
    pairs = list(combinations(zip(values, others, strict=True), 2))
    signs = [(_sign(a[0] - b[0]), _sign(a[1] - b[1])) for a, b in pairs]
    apart = math.prod(sum(abs(sign[side]) for sign in signs) for side in (0, 1))
    return sum(x * y for x, y in signs) / math.sqrt(apart) if apart else 0.0


def mean_tau(
    rankings: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> tuple[float, float, float, int] | None:
    """Kendall's tau between the two rankings of each seed: mean, 95 % t interval, seeds.

    None with fewer than `FEWEST_SEEDS` seeds.
    """
    if len(rankings) < FEWEST_SEEDS:
        return None
    found = summarize(kendall_tau(values, others) for values, others in rankings)
    assert found is not None and found.half_width is not None
    low, high = found.mean - found.half_width, found.mean + found.half_width
    return found.mean, max(low, -1.0), min(high, 1.0), found.n


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
