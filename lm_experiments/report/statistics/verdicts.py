"""What a contrast allows one to say, in a word or two, and the order of arms in a ranking."""

from __future__ import annotations

import math

from lm_experiments.report.statistics.contrasts import Contrast
from lm_experiments.rundir.study import FEWEST_SEEDS

LEVEL = 0.05

BETTER = "better"
WORSE = "worse"
EQUIVALENT = "equivalent"
UNRESOLVED = "unresolved"
# What a finished test says.
TEST_WORDS = (BETTER, WORSE, EQUIVALENT, UNRESOLVED)
MORE_SEEDS = "needs more seeds"
EXPLORATORY = "exploratory"
UNFINISHED = "unfinished"
IDENTICAL = "identical"
CHANGES_NOTHING = "identical: changes nothing"
DIFFERS = "differs: the study is not reproducible"
NO_COMPARISON = "no comparison"


def verdict(contrast: Contrast | None, failure: str | None, complete: bool, sign: int = 1) -> str:
    """The one claim a declared contrast supports; `sign` is -1 where a higher value is better.

    `failure` says which runs of the arm or its reference failed (`failures.failure_verdict`) and
    `complete` is whether every run of the study has ended: no claim is made halfway, and none
    from the means of the survivors. An arm with exactly its reference's loss on every common seed
    did not change the training at all, so that it is no evidence of equivalence either.

    Equivalence goes before significance: the margin was declared as the largest difference that
    does not matter, so one shown to be smaller is not an improvement, however certain its sign.
    The interval beside it still tells the sign. Both are adjusted for the number of contrasts.
    Raises `ValueError` for a contrast that did not go through `adjust`.
    """
    if not complete:
        return UNFINISHED
    if failure:
        return failure
    if contrast is None:
        return NO_COMPARISON
    if contrast.identical:
        return CHANGES_NOTHING
    if contrast.n < FEWEST_SEEDS:
        return f"{EXPLORATORY}, n = {contrast.n}"
    if contrast.adjusted_p is None:
        raise ValueError(
            "The contrast has no adjusted p; pass all contrasts of the study through adjust() "
            "first."
        )
    if contrast.within and contrast.within.equivalent:
        return EQUIVALENT
    if contrast.adjusted_p < LEVEL:
        return BETTER if sign * contrast.mean < 0 else WORSE
    return UNRESOLVED


def control_verdict(contrast: Contrast | None, failure: str | None, complete: bool) -> str:
    """The verdict on an A/A control, the baseline under another name, from one seed upwards.

    "identical" when it has exactly the baseline's loss on every common seed, otherwise "differs:
    the study is not reproducible". It has "no comparison" when it shares no seed.
    """
    if not complete:
        return UNFINISHED
    if failure:
        return failure
    if contrast is None or not contrast.paired:
        return NO_COMPARISON
    return IDENTICAL if contrast.identical else DIFFERS


def ranking_key(mean: float | None, failed: int) -> tuple[int, float]:
    """A sort key: arms without failed runs by mean, then the others, fewest failures first.

    A lower mean is better. An arm without one (None or NaN) comes after those with as many failures
    that have one.
    """
    if mean is None or math.isnan(mean):
        return failed, math.inf
    return failed, mean
