"""Verdicts on published claims, by a rule that is fixed before anything is trained.

What is promised, at this scale alone (`LEVEL` is .05), of the claimed differences of a study:

- of all together, one *holds*, or *holds in sign*, by chance in at most .05 of studies where it has
  the other sign or none: its sign is that of a test adjusted after Holm;
- of all together, one *does not hold* by chance in at most .05 of studies where it has the claimed
  sign (the same test), and in at most .05 where it is as large as claimed, and that is beyond the
  margin (the equivalence test, adjusted likewise);
- of each alone, an effect within the published range is called *holds in sign* in place of *holds*
  in at most .05 of studies, as the 95 % interval misses it no more often.

The rules for failures and for orders keep .05 for each claim alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from lm_experiments.report.statistics.contrasts import Contrast, summarize
from lm_experiments.report.statistics.verdicts import (
    BETTER,
    EQUIVALENT,
    LEVEL,
    MORE_SEEDS,
    UNFINISHED,
    UNRESOLVED,
    WORSE,
)
from lm_experiments.rundir import published
from lm_experiments.rundir.measures import MEASURES
from lm_experiments.rundir.published import BITS, NATS, Claim
from lm_experiments.rundir.results import DONE
from lm_experiments.rundir.study import FEWEST_SEEDS

if TYPE_CHECKING:
    from lm_experiments.report.collect import Run
    from lm_experiments.report.statistics.compare import Comparison, Plan, RunsByArm

HOLDS = "holds"
IN_SIGN = "holds in sign"
DOES_NOT_HOLD = "does not hold"
NOT_RESOLVED = "not resolved"
NOT_TESTABLE = "not testable here"
# The order in which a reader wants them: what does not hold first.
VERDICTS = (DOES_NOT_HOLD, IN_SIGN, HOLDS, NOT_RESOLVED, NOT_TESTABLE)
# Kendall's tau from which on an order counts as that of the source: three of four pairs agree.
AGREEMENT = 0.5
# Words of a contrast that was tested.
_TESTED = (BETTER, WORSE, EQUIVALENT, UNRESOLVED, MORE_SEEDS)
_FACTORS = {measure.short: (name, measure.test) for name, measure in MEASURES.items()}


@dataclass(frozen=True)
class Finding:
    """A claim held against a table.

    `mean`, `low` and `high` are the difference here with its 95 % interval in the claim's unit,
    or, of an order, Kendall's tau with its interval; None where there is none. `n` counts seeds.
    `span` is the published range in the unit of the table's differences, where it has one.
    `reason` says why a claim is not testable.
    """

    claim: Claim
    verdict: str
    here: str = ""
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    span: tuple[float, float] | None = None
    reason: str = ""


def difference_verdict(
    expect: str,
    span: tuple[float, float] | None,
    found: Contrast,
    margin: float | None,
    family: int = 1,
    sign: int = 1,
) -> str:
    """The verdict on a claimed difference, or on claimed equivalence within the margin.

    `span` is the published range in the unit of the adjusted contrast `found`, which is one of a
    `family` of so many. Equivalence is none where it is shown, and does not hold where an interval
    of 1 - .05 / family lies beyond the margin. It counts against a difference that is claimed
    beyond the margin; one claimed within it cannot be told from none by that test. `sign` is -1
    where a higher value is better.
    """
    equivalent = found.within is not None and found.within.equivalent
    if expect == published.EQUIVALENT:
        beyond = margin is not None and _beyond(found, margin, family)
        return HOLDS if equivalent else DOES_NOT_HOLD if beyond else NOT_RESOLVED
    certain = found.adjusted_p is not None and found.adjusted_p < LEVEL
    claimed = sign * found.mean > 0 if expect == published.WORSE else sign * found.mean < 0
    if certain and not claimed:
        return DOES_NOT_HOLD
    if equivalent and not (span and margin and _nearest_to_zero(span) < margin):
        return DOES_NOT_HOLD
    if not certain:
        return NOT_RESOLVED
    low, high = (found.low, found.high) if found.low is not None else (found.mean, found.mean)
    meets = span is not None and high is not None and low <= span[1] and high >= span[0]
    return HOLDS if meets else IN_SIGN


def failure_rule(failed: int, runs: int, reference_failed: int, reference_runs: int) -> str:
    """The verdict on a claim that an arm fails: k of n against its reference's.

    It holds where Fisher's exact test (1935), one-sided, says that the arm fails more often; it
    does not where an arm that fails in half of its runs would hardly fail so seldom.
    """
    total, failures = runs + reference_runs, failed + reference_failed
    ways = math.comb(total, failures)
    tail = sum(
        math.comb(runs, k) * math.comb(reference_runs, failures - k)
        for k in range(failed, min(runs, failures) + 1)
    )
    if tail <= LEVEL * ways and failed > 0:
        return HOLDS
    seldom = sum(math.comb(runs, k) for k in range(failed + 1)) / 2**runs
    return DOES_NOT_HOLD if seldom <= LEVEL else NOT_RESOLVED


def order_verdict(low: float, high: float) -> str:
    """The verdict on an order, from the interval of Kendall's tau over seeds."""
    if high < 0:
        return DOES_NOT_HOLD
    if low <= 0:
        return NOT_RESOLVED
    return HOLDS if high >= AGREEMENT else IN_SIGN


def kendall_tau(values: Sequence[float], others: Sequence[float]) -> float:
    """Kendall's rank correlation, tau-b, which allows for ties; 0 where one side is all ties."""
    pairs = list(combinations(zip(values, others, strict=True), 2))
    signs = [(_sign(a[0] - b[0]), _sign(a[1] - b[1])) for a, b in pairs]
    apart = math.prod(sum(abs(sign[side]) for sign in signs) for side in (0, 1))
    return sum(x * y for x, y in signs) / math.sqrt(apart) if apart else 0.0


def order_agreement(
    order: Mapping[str, float], losses: Mapping[str, Mapping[int, float]]
) -> tuple[float, float, float, int] | None:
    """Kendall's tau between published values and the losses of each seed: mean, interval, seeds.

    It is the t interval of the seeds' own taus. Means over seeds agree better than single seeds
    do, but resampling five seeds gives intervals that are too narrow, and these are not. None with
    fewer than `FEWEST_SEEDS` seeds that all arms have.
    """
    common = sorted(set.intersection(*(set(losses[arm]) for arm in order)))
    if len(common) < FEWEST_SEEDS:
        return None
    values = list(order.values())
    found = summarize(kendall_tau(values, [losses[arm][seed] for arm in order]) for seed in common)
    assert found is not None and found.half_width is not None
    low, high = found.mean - found.half_width, found.mean + found.half_width
    return found.mean, max(low, -1.0), min(high, 1.0), len(common)


def held_against(
    claims: Sequence[Claim],
    late: Mapping[str, str],
    plan: Plan,
    comparisons: Sequence[Comparison],
    runs: RunsByArm,
    complete: bool,
) -> tuple[Finding, ...]:
    """Hold each claim against the contrasts and the runs of a table.

    `late` says why claims, by their rules, were declared too late
    (`exploratory.late_claims`); `comparisons` are adjusted.
    """
    by_pair = {(item.arm, item.reference): item for item in comparisons}
    found = []
    for claim in claims:
        reason = late.get(claim.rule) or _untestable(claim, plan, runs, complete)
        if reason:
            found.append(_not_testable(claim, reason))
        elif claim.expect == published.ORDER:
            found.append(_order(claim, plan, runs))
        elif claim.expect == published.FAILS:
            found.append(_failures(claim, runs))
        else:
            first, second = claim.contrast
            found.append(_difference(claim, plan, by_pair[first, second], runs))
    return tuple(found)


def _untestable(claim: Claim, plan: Plan, runs: RunsByArm, complete: bool) -> str:
    """Why a claim of any kind cannot be held against these runs; empty where it can."""
    if missing := [arm for arm in claim.arms if not runs.get(arm)]:
        return f"no arm {missing[0]!r} was trained"
    if claim.contrast and tuple(claim.contrast) not in plan.pairs:
        return f"{' against '.join(claim.contrast)} is not among the contrasts of this table"
    if not complete:
        return f"the study is {UNFINISHED}"
    late = [
        reason
        for pair, reason in plan.exploratory.items()
        if list(pair) == claim.contrast or set(pair) & set(claim.order)
    ]
    return late[0] if late else ""


def _difference(claim: Claim, plan: Plan, item: Comparison, runs: RunsByArm) -> Finding:
    factor = _factor(claim.unit, plan.metric, runs[item.arm])
    if item.contrast is None or item.verdict not in _TESTED:
        return _not_testable(claim, item.verdict)
    if factor is None:
        return _not_testable(claim, f"the table has no {claim.unit} to compare")
    if claim.expect == published.EQUIVALENT and plan.margin is None:
        return _not_testable(claim, "the study declares no margin")
    contrast, span = item.contrast, claim.span
    own = (span[0] / factor, span[1] / factor) if span else None
    verdict = difference_verdict(claim.expect, own, contrast, plan.margin, plan.family, claim.sign)
    mean, low, high = (
        None if value is None else factor * value
        for value in (contrast.mean, contrast.low, contrast.high)
    )
    unit = "" if claim.unit == NATS else f" {claim.unit}"
    here = f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]{unit} over {contrast.n} seeds"
    return Finding(claim, verdict, here, mean, low, high, contrast.n, own)


def _failures(claim: Claim, runs: RunsByArm) -> Finding:
    arm, reference = (runs[name] for name in claim.contrast)
    if crashed := [run for run in (*arm, *reference) if run.failing and run.status != DONE]:
        return _not_testable(claim, f"{crashed[0].row.directory} crashed, which is no outcome")
    if min(len(arm), len(reference)) < FEWEST_SEEDS:
        return _not_testable(claim, f"fewer than {FEWEST_SEEDS} seeds")
    failed, others = (sum(run.failing for run in side) for side in (arm, reference))
    verdict = failure_rule(failed, len(arm), others, len(reference))
    name = claim.contrast[1]
    here = f"fails in {failed} of {len(arm)} runs, {name} in {others} of {len(reference)}"
    return Finding(claim, verdict, here, n=len(arm))


def _order(claim: Claim, plan: Plan, runs: RunsByArm) -> Finding:
    if failing := [arm for arm in claim.order if any(run.failing for run in runs[arm])]:
        return _not_testable(claim, f"{failing[0]!r} has failed runs")
    losses = {
        arm: {run.seed: v for run in runs[arm] if (v := run.value(plan.metric)) is not None}
        for arm in claim.order
    }
    found = order_agreement(claim.order, losses)
    if found is None:
        return _not_testable(claim, f"fewer than {FEWEST_SEEDS} seeds that all arms have")
    mean, low, high, n = found
    here = f"Kendall's tau {mean:+.2f} [{low:+.2f}, {high:+.2f}] over {n} seeds"
    return Finding(claim, order_verdict(low, high), here, mean, low, high, n)


def _factor(unit: str, metric: str, runs: Sequence[Run]) -> float | None:
    """The claim's unit in that of the table's metric, from a run that has both."""
    if metric in _FACTORS[unit]:
        return 1.0
    if unit != BITS or metric not in _FACTORS[NATS]:
        return None
    other = _FACTORS[BITS][_FACTORS[NATS].index(metric)]
    known = [(run.value(other), run.value(metric)) for run in runs]
    return next((bits / nats for bits, nats in known if bits and nats), None)


def _not_testable(claim: Claim, reason: str) -> Finding:
    return Finding(claim, NOT_TESTABLE, reason=reason)


def _beyond(found: Contrast, margin: float, family: int) -> bool:
    """Whether the interval of a family's contrast lies wholly on one side of the margin."""
    if found.error is None or found.degrees is None:
        return False
    # Imported here because scipy is slow to load.
    from scipy.special import stdtrit

    half = float(stdtrit(found.degrees, 1 - LEVEL / 2 / family)) * found.error
    return abs(found.mean) - half > margin


def _nearest_to_zero(span: tuple[float, float]) -> float:
    return 0.0 if span[0] <= 0 <= span[1] else min(map(abs, span))


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
