"""What trained runs lose on other contexts, texts and tasks, by arm, and paired differences.

They are secondary outcomes: each difference has its own 95 % interval, without p and verdict, and
is in no family of tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lm_experiments.report.statistics.compare import UNTESTED
from lm_experiments.report.statistics.contrasts import (
    Contrast,
    Summary,
    adjust,
    contrast,
    summarize,
)
from lm_experiments.rundir.evaluations import CONTEXT, DATA, TASK, Asked, Evaluation
from lm_experiments.rundir.measures import UNITS
from lm_experiments.rundir.published import Claim
from lm_experiments.rundir.study import FEWEST_SEEDS

if TYPE_CHECKING:
    from lm_experiments.report.collect import Run, Sweep
    from lm_experiments.report.statistics.compare import Plan, RunsByArm

Value = Callable[[Evaluation], float | None]


@dataclass(frozen=True)
class Cell:
    """What an arm loses on one of them: the mean over its runs, and the arm less its reference.

    `refused` says in few words why there is no loss. Of a context beyond the trained one, `within`
    is the loss of the targets in the second half of the positions that were trained, which have
    much text before them as all later ones have, and `beyond` that of the later ones.
    `by_position` holds where each range of positions ends, and its mean loss.
    """

    loss: Summary | None
    difference: Contrast | None = None
    refused: str = ""
    within: Summary | None = None
    beyond: Summary | None = None
    by_position: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Elsewhere:
    """All that was asked, with a cell for each arm, by the title of what was asked.

    `trained` is the trained context of each arm, in tokens. `references` maps an arm to the one it
    is compared with. `missing` counts what usable runs have not been measured on. `in_bits` tells
    that losses are in bits per byte.
    """

    asked: tuple[Asked, ...]
    cells: Mapping[str, Mapping[str, Cell]]
    trained: Mapping[str, int]
    references: Mapping[str, str]
    missing: int
    in_bits: bool

    @property
    def contexts(self) -> list[Asked]:
        """The context lengths among what was asked."""
        return [each for each in self.asked if each.kind == CONTEXT]

    def agreement(self, arm: str, primary: Contrast | None) -> tuple[int, int] | None:
        """On how many of how many other texts the difference has the sign of the primary one."""
        texts = [self.cells[arm][each.title].difference for each in self.asked if each.kind == DATA]
        found = [difference.mean for difference in texts if difference]
        if primary is None or not found:
            return None
        return sum((mean > 0) == (primary.mean > 0) for mean in found), len(found)


def elsewhere(sweep: Sweep, plan: Plan, runs: RunsByArm) -> Elsewhere | None:
    """What the runs that arms are judged by lose elsewhere; None where the study asks nothing."""
    evaluate = sweep.study.evaluate if sweep.study else None
    if evaluate is None:
        return None
    # Of several contrasts of an arm, its row of the table shows the first.
    references = dict(reversed(plan.pairs))
    in_bits = plan.metric.endswith("bits_per_byte")
    cells: dict[str, dict[str, Cell]] = {arm: {} for arm in runs}
    for each in evaluate.asked:
        value = value_of(each, in_bits)
        found = {arm: measured(its, each) for arm, its in runs.items()}
        for arm in runs:
            difference = difference_of(runs, found, (arm, references.get(arm)), value)
            cells[arm][each.title] = _cell(found[arm], difference, value)
    usable = [run for its in runs.values() for run in its if run.usable]
    missing = sum(run.evaluation(each) is None for run in usable for each in evaluate.asked)
    trained = {
        arm: max((run.result.eval_context or 0 for run in its), default=0)
        for arm, its in runs.items()
    }
    return Elsewhere(tuple(evaluate.asked), cells, trained, references, missing, in_bits)


def measured(runs: Sequence[Run], asked: Asked) -> dict[int, Evaluation]:
    """What was measured of an arm's usable runs, by seed."""
    known = ((run.seed, run.evaluation(asked)) for run in runs if run.usable)
    return {seed: found for seed, found in known if found is not None}


def difference_of(
    runs: RunsByArm,
    found: Mapping[str, Mapping[int, Evaluation]],
    pair: tuple[str, str | None],
    value: Value,
) -> Contrast | None:
    """The first arm less the second, untested; None where one of them has failed runs or nothing.

    The survivors of a failing arm are no fair sample.
    """
    arm, reference = pair
    if reference is None or any(run.failing for name in (arm, reference) for run in runs[name]):
        return None
    item = contrast(values_of(found[arm], value), values_of(found[reference], value))
    return replace(item, **UNTESTED) if item else None


def contrasts_at_contexts(
    claims: Sequence[Claim], plan: Plan, runs: RunsByArm
) -> dict[str, Contrast | str]:
    """The contrasts of claims on contexts by their rules, adjusted after Holm in their own family.

    Each is of an arm at the claimed context, less the same runs at the trained one. In place of
    one that cannot be tested stands the reason.
    """
    claims = list({claim.rule: claim for claim in claims if claim.context is not None}.values())
    found = [_against_itself(claim, plan, runs.get(claim.contrast[0], ())) for claim in claims]
    tested = [None if isinstance(each, str) else each for each in found]
    adjusted = adjust(tested, margin_in_nats(plan))
    return {
        claim.rule: each if isinstance(each, str) else (item or each)
        for claim, each, item in zip(claims, found, adjusted, strict=True)
    }


def margin_in_nats(plan: Plan) -> float | None:
    """The margin for losses at contexts, which are in nats; None where it is in another unit."""
    return plan.margin if UNITS[plan.metric] == UNITS["val_loss"] else None


def _against_itself(claim: Claim, plan: Plan, runs: Sequence[Run]) -> Contrast | str:
    assert claim.context is not None
    if any(run.failing for run in runs):
        return f"{claim.contrast[0]!r} has failed runs"
    there, trained = (
        measured(runs, Asked(CONTEXT, "", multiple)) for multiple in (claim.context, 1.0)
    )
    if refused := [each.refused for each in there.values() if each.refused]:
        return f"{claim.sides[0]} cannot be measured ({refused[0]})"
    own, reference = (values_of(found, lambda each: each.loss) for found in (there, trained))
    item = contrast(own, reference, margin_in_nats(plan))
    if item is None or not item.paired or item.n < FEWEST_SEEDS:
        return f"fewer than {FEWEST_SEEDS} seeds are measured there"
    # Equal losses are no sample.
    return replace(item, **UNTESTED) if item.identical else item


def values_of(found: Mapping[int, Evaluation], value: Value) -> dict[int, float]:
    """The finite values of what was measured, by seed."""
    known = {seed: number for seed, each in found.items() if (number := value(each)) is not None}
    return {seed: number for seed, number in known.items() if math.isfinite(number)}


def value_of(asked: Asked, in_bits: bool) -> Value:
    """What is compared: the score of a task, else the loss in nats per token or bits per byte."""
    if asked.kind == TASK:
        return lambda found: found.score
    return (lambda found: found.bits_per_byte) if in_bits else (lambda found: found.loss)


def _cell(found: Mapping[int, Evaluation], difference: Contrast | None, value: Value) -> Cell:
    refused = next((each.refused for each in found.values() if each.refused), "")
    long = [each for each in found.values() if each.ends]
    return Cell(
        summarize(values_of(found, value).values()),
        difference,
        refused,
        _mean_of(long, lambda each: each.between((each.trained or 0) // 2, each.trained)),
        _mean_of(long, lambda each: each.between(each.trained)),
        _by_position(long),
    )


def _mean_of(found: Sequence[Evaluation], value: Value) -> Summary | None:
    known = [number for each in found if (number := value(each)) is not None]
    return summarize(number for number in known if math.isfinite(number))


def _by_position(found: Sequence[Evaluation]) -> tuple[tuple[int, float], ...]:
    """Where the ranges of positions end, and the mean loss of each over runs."""
    if not found or len({tuple(each.ends) for each in found}) > 1:
        return ()
    columns = zip(*(each.by_position for each in found), strict=True)
    means = [sum(column) / len(column) for column in columns]
    return tuple(zip(found[0].ends, means, strict=True))
