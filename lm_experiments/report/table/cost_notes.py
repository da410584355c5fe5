"""What the arms of a table are equal in: tokens, parameters, FLOPs or time, with what came out."""

from __future__ import annotations

from collections.abc import Mapping

from lm_experiments.report.collect import Run
from lm_experiments.report.statistics.to_loss import ToLoss, to_loss, to_loss_text
from lm_experiments.report.table.cost import (
    COSTS,
    TOLERANCE,
    Cost,
    alike,
    apart,
    caveat,
    shares,
    unlike_size,
)
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.report.table.warnings import listed
from lm_experiments.rundir.results import FLOPS, SECONDS, TOKENS
from lm_experiments.rundir.study import FEWEST_SEEDS
from lm_experiments.rundir.words import joined

# What it takes to the baseline's loss is counted in, as it is said.
TO_LOSS: Mapping[str, str] = {TOKENS: "tokens", FLOPS: "FLOPs", SECONDS: "seconds"}
BOUND = (
    "where the learning rate decays this is a bound, as a loss on the way is one before the decay "
    "and runs of that length would end lower"
)
MASKED = "FLOPs count attention across documents too, which a document mask leaves out ({arms})."


def equal_in(table: Table, row: Row) -> list[str]:
    """In what an arm is equal to what it is compared with, such as "tokens"."""
    pair = _pair(table, row)
    return [COSTS[name] for name in alike(*pair)] if pair else []


def realised(table: Table, row: Row) -> dict[str, float]:
    """By which share an arm's costs differ from those of what it is compared with."""
    pair = _pair(table, row)
    return shares(*pair) if pair else {}


def to_baseline(table: Table, row: Row, against: str) -> ToLoss | None:
    """What an arm takes to the baseline's final loss, of one of `TO_LOSS`; None where unknown."""
    baseline = table.baseline_of(row)
    if baseline is None:
        return None
    timed = against == SECONDS and _timed_alike(table, row, baseline)
    return to_loss(row.usable, baseline.usable, against, timed)


def cost_notes(table: Table) -> list[str]:
    """What arms are compared at, and the caveat on those of unlike size."""
    groups: dict[str, list[str]] = {}
    unlike: dict[str, list[str]] = {}
    for row in table.rows:
        if not (pair := _pair(table, row)) or not row.comparison:
            continue
        rest = apart(*pair)
        arm = f"{row.arm} ({', '.join(rest)})" if rest else row.arm
        groups.setdefault(joined(equal_in(table, row)) or "none of the costs", []).append(arm)
        if reasons := unlike_size(*pair):
            unlike[f"{row.arm} against {row.comparison.reference}"] = reasons
    found = [f"equal {same}: {listed(arms)}" for same, arms in groups.items()]
    lines = [f"Compared at {'; at '.join(found)}."] if found else []
    return [*lines, *caveat(unlike), *_masked(table), *_sooner(table)]


def _sooner(table: Table) -> list[str]:
    """Which arms come to the baseline's final loss with fewer tokens, beyond the noise of seeds."""
    if not table.sweep.complete:
        return []
    found = {row.arm: to_baseline(table, row, TOKENS) for row in table.rows}
    known = {arm: it for arm, it in found.items() if it and it.seeds >= FEWEST_SEEDS}
    clear = {arm: it for arm, it in known.items() if it.high is not None and it.high < 1}
    said = listed(f"{arm} {to_loss_text(it)}" for arm, it in clear.items())
    study, name = table.sweep.study, table.baseline
    if study and study.ladder and name == study.baseline:
        name = f"{study.declared_baseline} on the same rung"
    return [f"Tokens to the final loss of {name}: {said}; {BOUND}."] if clear else []


def _masked(table: Table) -> list[str]:
    arms = [row.arm for row in table.rows if any(_has_mask(run) for run in row.usable)]
    return [MASKED.format(arms=listed(arms))] if arms else []


def _has_mask(run: Run) -> bool:
    return bool(run.values.get("model.document_mask"))


def _pair(table: Table, row: Row) -> tuple[Cost, Cost] | None:
    """The costs of an arm and of its reference, None where one of them has no usable run."""
    reference = row.comparison.reference if row.comparison else None
    other = next((found for found in table.rows if found.arm == reference), None)
    if other is None or not row.usable or not other.usable:
        return None
    timed = _timed_alike(table, row, other)
    return _cost(row, timed), _cost(other, timed)


def _timed_alike(table: Table, row: Row, other: Row) -> bool:
    """Whether two arms take equally long by steps that were timed before training."""
    return table.same_rung(row.arm, other.arm) and all(_timed(table, one) for one in (row, other))


def _timed(table: Table, row: Row) -> bool:
    """Whether an arm takes as long as the declared baseline of its rung, or is that."""
    study = table.sweep.study
    declared = study.baseline_of(row.arm) if study else table.sweep.baseline
    return row.arm == declared or any(run.result.equal == SECONDS for run in row.usable)


def _cost(row: Row, timed: bool) -> Cost:
    run = row.usable[0]
    result, values = run.result, run.values
    return Cost(
        tokens=result.tokens,
        ffn=result.parameters.get("ffn"),
        parameters=run.parameters,
        flops=result.train_flops,
        # Steps were chosen so that these are equal.
        seconds=1.0 if timed else None,
        n_layers=values.get("model.n_layers"),
        d_model=values.get("model.d_model"),
        tolerance=result.match_tolerance or TOLERANCE,
        step=1 / result.steps if result.steps else 0.0,
    )
