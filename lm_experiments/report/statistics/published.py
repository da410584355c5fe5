"""Verdicts on published claims, by a rule that is fixed before anything is trained.

What is promised, at this scale alone (`LEVEL` is .05), of the claimed differences of a study:

- of all together, one *holds*, or *holds in sign*, by chance in at most .05 of studies where it has
  the other sign or none: its sign is that of a test adjusted after Holm;
- of all together, one *does not hold* by chance in at most .05 of studies where it has the claimed
  sign (the same test), and in at most .05 where it is as large as claimed, and that is beyond the
  margin (the equivalence test, adjusted likewise);
- of each alone, an effect within the published range is called *holds in sign* in place of *holds*
  in at most .05 of studies, as the 95 % interval misses it no more often.

The rules for failures, for orders and for what tuning found (`measured_verdict`) keep .05 for each
claim alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lm_experiments.report.statistics import elsewhere
from lm_experiments.report.statistics.contrasts import Contrast, summarize
from lm_experiments.report.statistics.ranks import mean_tau
from lm_experiments.report.statistics.verdicts import (
    LEVEL,
    MORE_SEEDS,
    TEST_WORDS,
    UNFINISHED,
)
from lm_experiments.rundir import published
from lm_experiments.rundir.measures import MEASURES, sign_of
from lm_experiments.rundir.published import BITS, NATS, Claim
from lm_experiments.rundir.results import DONE
from lm_experiments.rundir.study import FEWEST_SEEDS

if TYPE_CHECKING:
    from lm_experiments.report.collect import Run
    from lm_experiments.report.statistics.compare import Comparison, Plan, RunsByArm
    from lm_experiments.report.statistics.trials import Trials

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
_TESTED = (*TEST_WORDS, MORE_SEEDS)
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
    claimed = sign * found.mean * published.SIGNS[expect] > 0
    if certain and not claimed:
        return DOES_NOT_HOLD
    if equivalent and not (span and margin and _nearest_to_zero(span) < margin):
        return DOES_NOT_HOLD
    if not certain:
        return NOT_RESOLVED
    low, high = (found.low, found.high) if found.low is not None else (found.mean, found.mean)
    meets = span is not None and high is not None and low <= span[1] and high >= span[0]
    return HOLDS if meets else IN_SIGN


def measured_verdict(expect: str, span: tuple[float, float] | None, low: float, high: float) -> str:
    """The verdict on a claim about what tuning found, from the 95 % interval of the difference.

    Equivalence is within the claim's range; a difference needs the claimed sign, and the published
    range decides between *holds* and *holds in sign* as it does for the loss.
    """
    meets = span is not None and low <= span[1] and high >= span[0]
    if expect == published.EQUIVALENT:
        inside = span is not None and span[0] <= low and high <= span[1]
        return HOLDS if inside else NOT_RESOLVED if meets else DOES_NOT_HOLD
    if low <= 0 <= high:
        return NOT_RESOLVED
    if low * published.SIGNS[expect] < 0:
        return DOES_NOT_HOLD
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


def order_agreement(
    order: Mapping[str, float], losses: Mapping[str, Mapping[int, float]]
) -> tuple[float, float, float, int] | None:
    """Kendall's tau between published values and the losses of each seed: mean, interval, seeds.

    It is the t interval of the seeds' own taus. Means over seeds agree better than single seeds
    do, but resampling five seeds gives intervals that are too narrow, and these are not. None with
    fewer than `FEWEST_SEEDS` seeds that all arms have.
    """
    common = sorted(set.intersection(*(set(losses[arm]) for arm in order)))
    values = list(order.values())
    return mean_tau([(values, [losses[arm][seed] for arm in order]) for seed in common])


def held_against(
    claims: Sequence[Claim],
    late: Mapping[str, str],
    plan: Plan,
    comparisons: Sequence[Comparison],
    runs: RunsByArm,
    complete: bool,
    trials: Trials | None = None,
) -> tuple[Finding, ...]:
    """Hold each claim against the contrasts, the runs and the trials of a table.

    `late` says why claims, by their rules, were declared too late
    (`exploratory.late_claims`); `comparisons` are adjusted.
    """
    at_contexts = elsewhere.contrasts_at_contexts(claims, plan, runs)
    by_pair = {(item.arm, item.reference): item for item in comparisons}
    found = []
    for claim in claims:
        if claim.context is not None:
            item = at_contexts[claim.rule] if complete else f"the study is {UNFINISHED}"
            item = late.get(claim.rule) or item
            found.append(_at_context(claim, plan, item, len(at_contexts)))
            continue
        reason = late.get(claim.rule) or _untestable(claim, plan, runs, complete)
        if reason:
            found.append(_not_testable(claim, reason))
        elif claim.expect == published.ORDER:
            found.append(_order(claim, plan, runs))
        elif claim.expect == published.FAILS:
            found.append(_failures(claim, runs))
        elif claim.measure != published.LOSS:
            found.append(_measured(claim, trials))
        else:
            first, second = claim.contrast
            found.append(_difference(claim, plan, by_pair[first, second], runs))
    return tuple(found)


def _untestable(claim: Claim, plan: Plan, runs: RunsByArm, complete: bool) -> str:
    """Why a claim of any kind cannot be held against these runs; empty where it can."""
    if missing := [arm for arm in claim.arms if not runs.get(arm)]:
        return f"no arm {missing[0]!r} was trained"
    tested = claim.measure == published.LOSS and bool(claim.contrast)
    if tested and tuple(claim.contrast) not in plan.pairs:
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


def _measured(claim: Claim, trials: Trials | None) -> Finding:
    """A claim about what the trials of both arms say, paired over the tuning seeds."""
    if trials is None:
        return _not_testable(claim, "the study has no tune:")
    arm, reference = (trials.measured(claim.measure, name) for name in claim.contrast)
    if isinstance(arm, str) or isinstance(reference, str):
        return _not_testable(claim, arm if isinstance(arm, str) else str(reference))
    found = summarize(arm[seed] - reference[seed] for seed in sorted(arm.keys() & reference.keys()))
    if found is None or found.n < FEWEST_SEEDS or found.half_width is None:
        return _not_testable(claim, f"fewer than {FEWEST_SEEDS} tuning seeds")
    low, high = found.mean - found.half_width, found.mean + found.half_width
    verdict = measured_verdict(claim.expect, claim.span, low, high)
    here = f"{found.mean:+.3f} [{low:+.3f}, {high:+.3f}] {claim.unit} over {found.n} tuning seeds"
    return Finding(claim, verdict, here, found.mean, low, high, found.n)


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
    if claim.sign != sign_of(plan.metric):
        return _not_testable(claim, f"the table has no {claim.unit} to compare")
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


def _at_context(claim: Claim, plan: Plan, item: Contrast | str, family: int) -> Finding:
    """A claim on an arm at another context, against a contrast of its family or a reason."""
    if isinstance(item, str):
        return _not_testable(claim, item)
    margin = elsewhere.margin_in_nats(plan)
    if claim.expect == published.EQUIVALENT and margin is None:
        return _not_testable(claim, f"the study declares no margin in {NATS}")
    verdict = difference_verdict(claim.expect, claim.span, item, margin, family)
    here = f"{item.mean:+.4f} [{item.low:+.4f}, {item.high:+.4f}] over {item.n} seeds"
    return Finding(claim, verdict, here, item.mean, item.low, item.high, item.n)


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
