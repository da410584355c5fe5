"""Whether a difference lasts: its slope over the rungs of a ladder, and a verdict by a fixed rule.

Each seed is measured at every rung, so that rungs are not independent, and their spreads differ.
What is asked is therefore worked out for each seed by itself, as one number: its least-squares
slope against log2 of compute, and the weighted sums of its differences that the verdict rests on.
The mean of such a number over the seeds gets a paired t test (summary measures, Matthews et al.
1990). With normal noise that is exact whatever the variances of the rungs and their correlations;
a regression on all points at once would count K rungs of n seeds as K x n independent runs.

The verdict on a contrast. *Certain* is p < .05 over the seeds, adjusted after Holm over the
contrasts of the ladder; the *level* is the mean of the differences at the first and last rung.

- *flips*: the differences at the first and at the last rung are certain and have opposite signs;
- *shrinks*: slope and level are certain and have opposite signs: |last|^2 - |first|^2 is twice the
  level times the change. A difference on its way to zero shrinks, however far it has come;
- *grows*: slope and level are certain and have the same sign;
- *holds*: the first and the last are certain, the slope is not, and at every later rung it is
  certain that between `KEPT` and 1 / `KEPT` of the first rung's difference is there (one-sided t
  tests on weighted sums, after Fieller 1954; all of them, an intersection-union test, Berger 1982);
- *unresolved*: none of these. A wide interval is no evidence that a difference holds.

What is promised, with normal noise, of all contrasts of a ladder together: a difference that does
not change is said to shrink or to grow in at most .05 of ladders, and one that has lost more than
1 - `KEPT` of itself at any rung is said to hold in at most .05. The rule is about these rungs;
nothing is extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.contrasts import Contrast, contrast
from lm_experiments.report.statistics.failures import holm_with_failures
from lm_experiments.report.statistics.verdicts import EXPLORATORY, LEVEL, UNRESOLVED
from lm_experiments.rundir.ladder import FEWEST_RUNGS
from lm_experiments.rundir.study import FEWEST_SEEDS

HOLDS, SHRINKS, GROWS, FLIPS = "holds", "shrinks", "grows", "flips"
# The share of the first rung's difference that must be left at every later one to say "holds".
KEPT = 2 / 3
# What of a trend is tested against zero.
PARTS = ("slope", "level", "first", "last")
# A weighted sum of a contrast's rungs, and its weights, with more noise in its error.
Widen = Callable[[Contrast, Sequence[float]], Contrast]


@dataclass(frozen=True)
class Trend:
    """The change of one contrast over a ladder, in the unit of its differences.

    `slope` is the change of the difference per doubling of compute, over the seeds that all rungs
    have; `first` and `last` are the differences at the ends, over the same seeds, and `level` is
    their mean. Their `adjusted_p` are Holm's over the ladder. `kept_p` is the p against having
    lost, or gained, too much to hold, None with one seed. `verdict` is empty until `judged`.
    """

    slope: Contrast
    level: Contrast
    first: Contrast
    last: Contrast
    kept_p: float | None
    verdict: str = ""


def trend(
    compute: Sequence[float],
    rungs: Sequence[Contrast],
    widen: Widen = lambda found, weights: found,
) -> Trend | None:
    """The trend of paired contrasts over rungs of so much compute (FLOPs), not yet judged.

    None where the rungs share no seed. Raises `InputError` for fewer than three rungs, and for
    compute that does not rise.
    """
    _check(compute, rungs)
    by_seed = [dict(zip(rung.seeds, rung.differences, strict=True)) for rung in rungs]
    common = sorted(set.intersection(*map(set, by_seed)))
    if not common:
        return None

    def _sum(weights: Sequence[float]) -> Contrast:
        sums = {
            seed: math.fsum(w * own[seed] for w, own in zip(weights, by_seed, strict=True))
            for seed in common
        }
        found = contrast(sums, dict.fromkeys(common, 0.0))
        assert found is not None
        return widen(found, weights)

    ends = _unit(0, len(rungs)), _unit(len(rungs) - 1, len(rungs))
    first, last = map(_sum, ends)
    level = _sum([(a + b) / 2 for a, b in zip(*ends, strict=True)])
    tests = [_sum(weights) for weights in _within(len(rungs), math.copysign(1.0, first.mean))]
    known = [p for test in tests if (p := _above_zero(test)) is not None]
    return Trend(_sum(slope_weights(compute)), level, first, last, max(known, default=None))


def judged(trends: Sequence[Trend | None]) -> list[Trend | None]:
    """The trends of all contrasts of a ladder with adjusted p and verdicts.

    None, for a contrast that is not tested, counts in the family with p = 1.
    """
    adjusted = {
        part: _holm([getattr(found, part).p if found else None for found in trends])
        for part in PARTS
    }
    kept = _holm([found.kept_p if found else None for found in trends])
    return [
        found and _judged(found, {part: adjusted[part][at] for part in PARTS}, kept[at])
        for at, found in enumerate(trends)
    ]


def slope_weights(compute: Sequence[float]) -> list[float]:
    """The weights of the rungs' values whose sum is the least-squares slope per doubling."""
    doublings = [math.log2(value) for value in compute]
    middle = math.fsum(doublings) / len(doublings)
    spread = math.fsum((x - middle) ** 2 for x in doublings)
    return [(x - middle) / spread for x in doublings]


def _judged(found: Trend, adjusted: Mapping[str, float | None], kept: float | None) -> Trend:
    parts = {part: replace(getattr(found, part), adjusted_p=p) for part, p in adjusted.items()}
    tested = replace(found, **parts)
    return replace(tested, verdict=_verdict(tested, kept))


def _verdict(found: Trend, kept: float | None) -> str:
    if found.slope.n < FEWEST_SEEDS:
        return f"{EXPLORATORY}, n = {found.slope.n}"
    slope, level, first, last = (_certain_sign(getattr(found, part)) for part in PARTS)
    if first * last < 0:
        return FLIPS
    if slope * level:
        return GROWS if slope == level else SHRINKS
    holds = first and last and not slope and kept is not None and kept < LEVEL
    return HOLDS if holds else UNRESOLVED


def _certain_sign(part: Contrast) -> float:
    """The sign of a tested mean, 0 where it is not certain."""
    certain = part.adjusted_p is not None and part.adjusted_p < LEVEL
    return math.copysign(1.0, part.mean) if certain else 0.0


def _within(rungs: int, sign: float) -> list[list[float]]:
    """The weights of the sums that are above zero where each later rung keeps the difference."""
    found = []
    for at in range(1, rungs):
        first, later = _unit(0, rungs), _unit(at, rungs)
        found.append([sign * (b - KEPT * a) for a, b in zip(first, later, strict=True)])
        found.append([sign * (a - KEPT * b) for a, b in zip(first, later, strict=True)])
    return found


def _above_zero(found: Contrast) -> float | None:
    """The one-sided p against a mean of zero or less."""
    if found.p is None:
        return None
    return found.p / 2 if found.mean > 0 else 1 - found.p / 2


def _unit(at: int, rungs: int) -> list[float]:
    return [float(place == at) for place in range(rungs)]


def _holm(p_values: Sequence[float | None]) -> list[float | None]:
    return list(holm_with_failures(dict(enumerate(p_values))).values())


def _check(compute: Sequence[float], rungs: Sequence[Contrast]) -> None:
    rises = all(low < high for low, high in pairwise(compute))
    if len(rungs) < FEWEST_RUNGS or len(rungs) != len(compute):
        raise InputError(
            f"A ladder has {FEWEST_RUNGS} rungs or more, each with its compute, not {len(rungs)} "
            f"rungs and {len(compute)} numbers of FLOPs."
        )
    if not rises or compute[0] <= 0:
        raise InputError(
            f"The compute of the rungs, {list(compute)} FLOPs, must rise from above 0."
        )
