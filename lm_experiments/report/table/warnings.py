"""The warnings under a table: what makes its runs less comparable than they look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from lm_experiments.report.collect import Run
from lm_experiments.report.statistics.compare import SAME_RUNS
from lm_experiments.report.statistics.tuning import FEWEST_TUNING_SEEDS
from lm_experiments.report.statistics.verdicts import CHANGES_NOTHING
from lm_experiments.report.table.comparable import (
    Difference,
    differences,
    has_equal_budget,
    short_hash,
    tokenizers_differ,
)
from lm_experiments.report.table.rows import Table
from lm_experiments.rundir.results import DEGRADED

LISTED = 6


def warnings(table: Table) -> list[str]:
    """One line for each way in which the runs of this table are not comparable."""
    return [
        *_conditions(table),
        *_runs(table),
        *_tuning(table),
        *_choices(table),
        *_references(table),
    ]


def listed(values: Iterable[str], limit: int = LISTED) -> str:
    """The first few of these, and how many more there are."""
    items = list(values)
    more = [f"and {len(items) - limit} more"] if len(items) > limit else []
    return ", ".join([*items[:limit], *more])


def _conditions(table: Table) -> Iterator[str]:
    """What the runs were not trained and measured alike in."""
    for found in differences(table.sweep):
        equal = found.shared.budgeted and any(map(has_equal_budget, chain(*found.groups.values())))
        if equal or _declared_by_rung(table, found):
            # What they are equal in instead is said beside the verdicts.
            continue
        counts = {value: len(runs) for value, runs in found.groups.items()}
        cause = ", as their arms declare" if found.on_purpose else ""
        yield _differing(f"{found.shared.name}{cause}", counts, found.shared.reason)
    study = table.sweep.study
    if tokenizers_differ(table.sweep):
        is_unused = study and study.margin and table.plan.margin is None
        unused = " The margin is in nats per token and is not used."
        yield (
            "The arms are compared by bits per byte, as their tokenizers differ: their losses in "
            f"nats per token are not comparable.{unused if is_unused else ''}"
        )
    if table.trial_metric == "bits_per_byte":
        runs = (run for run in table.sweep.runs if run.usable and run.result.bits_per_byte is None)
        if arms := dict.fromkeys(repr(run.arm) for run in runs):
            yield (
                f"Warning: {listed(arms)} cannot be compared: bits per byte are empty where a "
                "tokenizer does not give the text back as it was, or the text is not known."
            )
    for name, reason in (
        ("device", "tokens/s is not comparable"),
        ("precision", "losses differ by rounding"),
        ("compiled", "losses differ by rounding, and tokens/s is not comparable"),
        ("deterministic", "equal runs may differ in the last bits, and tokens/s is not comparable"),
        ("threads", "equal runs may differ in the last bits, and tokens/s is not comparable"),
    ):
        values = (run.fact(name) for run in table.sweep.runs if run.usable)
        counts = Counter(str(value) for value in values if value is not None)
        if len(counts) > 1:
            yield _differing(name, counts, reason)


def _declared_by_rung(table: Table, found: Difference) -> bool:
    """Whether it is the budget alone, in which only the rungs of the study's ladder differ."""
    ladder = table.ladder.ladder if table.ladder else None
    if ladder is None or found.shared.name != "tokens":
        return False
    labels = [
        {rung.label if (rung := ladder.rung_of(run.arm)) else "" for run in runs}
        for runs in found.groups.values()
    ]
    return sum(map(len, labels)) == len(set.union(*labels))


def _differing(name: str, counts: Mapping[str, int], reason: str) -> str:
    total = sum(counts.values())
    shown = listed(f"{value} ({n} of {total})" for value, n in counts.items())
    return f"Warning: the runs differ in {name}: {shown}; {reason}."


def _runs(table: Table) -> Iterator[str]:
    counts = Counter((run.arm, run.seed, run.role) for run in table.sweep.runs)
    if repeated := [f"{arm!r} seed {seed}" for (arm, seed, _), n in counts.items() if n > 1]:
        yield (
            f"Warning: more than one run for {listed(repeated)}; n counts seeds, and the last of "
            "its runs stands for each."
        )
    if worse := [said for run in table.sweep.runs if (said := _worse_than_best(run))]:
        yield f"Warning: final losses clearly above the best on the way: {listed(worse)}."
    seeds = {row.arm: sorted({run.seed for run in row.runs}) for row in table.rows if row.runs}
    if len(set(map(tuple, seeds.values()))) > 1 and not table.plan.looks:
        shown = listed(f"{arm!r} {', '.join(map(str, own))}" for arm, own in seeds.items())
        yield (
            f"Warning: the arms do not have the same seeds ({shown}), so their means and their "
            "order are over different seeds; differences are over the seeds that both arms share."
        )
    sizes = {row.arm: {run.parameters for run in row.usable} for row in table.rows}
    if unequal := [repr(arm) for arm, found in sizes.items() if len(found) > 1]:
        yield f"Warning: the runs of {listed(unequal)} differ in their number of parameters."


def _tuning(table: Table) -> Iterator[str]:
    trials = table.sweep.trials
    counts = Counter(run.arm for run in trials)
    if table.sweep.complete and len(set(counts.values())) > 1:
        shown = listed(f"{arm!r} {n}" for arm, n in counts.items())
        yield f"Warning: the arms did not get the same number of tuning trials: {shown}."
    for name in ("commit", "data_hash"):
        apart = _known(trials, name) - _known(table.sweep.runs, name)
        if apart:
            found = listed(sorted(map(str, map(short_hash, apart))))
            yield f"Warning: some tuning trials have another {name}: {found}."


def _choices(table: Table) -> Iterator[str]:
    """What the intervals of tuned arms lack."""
    tune = table.tune
    silent = [row.arm for row in table.rows if row.tuned and row.tuned.noise is None]
    if tune and silent and table.most_seeds > 1:
        # One seed cannot tell how the choice would vary with it.
        first, *_ = tune.seeds
        more = list(range(first, first + FEWEST_TUNING_SEEDS))
        few = len(tune.seeds) < FEWEST_TUNING_SEEDS
        cure = f"; type study.tune.seeds={more}".replace(" [", "[").replace(", ", ",")
        yield (
            f"Warning: the noise of tuning is not in the intervals and p of {listed(silent)}"
            + (cure if few else ", as no value trained with every tuning seed")
            + "."
        )


def _worse_than_best(run: Run) -> str | None:
    """How far a run ended above its best, None where that is not far, or not recorded."""
    result = run.result
    # The curve may be over a part of the set; before there was a part, it ended in the loss itself.
    last = result.val_loss if result.curve_loss is None else result.curve_loss
    best, step = result.best_val_loss, result.best_step
    if run.outcome != DEGRADED or last is None or best is None or not best < last:
        return None
    return f"{run.arm!r} seed {run.seed} {last:.4f} (best {best:.4f} at step {step:,})"


def _known(runs: Iterable[Run], name: str) -> set[str]:
    return {value for run in runs if run.finished and (value := run.fact(name)) is not None}


def _references(table: Table) -> Iterator[str]:
    """What makes differences less certain, and what is in no arm at all."""
    references = {item.reference for item in table.comparisons}
    for row in table.rows:
        failed = sum(run.failing for run in row.runs)
        if row.arm in references and failed and row.loss:
            yield (
                f"Warning: the reference {row.arm!r} fails {failed} of {len(row.runs)}, so "
                "differences to it are over the seeds on which it survived, without a verdict."
            )
    if apart := [repr(c.arm) for c in table.comparisons if c.contrast and not c.contrast.paired]:
        yield (
            f"Warning: {listed(apart)} and the reference share fewer than two seeds: the interval "
            "is Welch's, from two separate means."
        )
    for item in table.comparisons:
        if item.verdict == SAME_RUNS:
            yield (
                f"Warning: {item.arm!r} and {item.reference!r} have the same configuration and are "
                "the same runs, so their difference says nothing."
            )
        if item.verdict == CHANGES_NOTHING:
            yield (
                f"Warning: {item.arm!r} has exactly the losses of {item.reference!r} on every seed "
                "they share: what it overrides changes nothing in these runs."
            )
    if table.sweep.extra:
        extra = listed(path.name for path in table.sweep.extra)
        yield f"Left out, as sweep.json does not plan them: {extra}."
