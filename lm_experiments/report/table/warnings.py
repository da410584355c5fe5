"""The warnings under a table: what makes its runs less comparable than they look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lm_experiments.report.collect import Run
from lm_experiments.report.table.comparable import Difference, differences, short_hash
from lm_experiments.report.table.rows import Table

LISTED = 6


def warnings(table: Table) -> list[str]:
    """One line for each way in which the runs of this table are not comparable."""
    found = [_differing(difference) for difference in differences(table.sweep.runs)]
    return [
        *found,
        *_bytes(table),
        *_machines(table),
        *_repeated_seeds(table),
        *_unequal_sizes(table),
        *_tuning(table),
        *_failing_reference(table),
        *_unpaired(table),
        *_same_runs(table),
        *_left_out(table),
    ]


def listed(values: Iterable[str], limit: int = LISTED) -> str:
    """The first few of these, and how many more there are."""
    items = list(values)
    more = [f"and {len(items) - limit} more"] if len(items) > limit else []
    return ", ".join([*items[:limit], *more])


def _differing(difference: Difference) -> str:
    total = sum(map(len, difference.groups.values()))
    counts = [f"{value} ({len(runs)} of {total})" for value, runs in difference.groups.items()]
    cause = ", as their arms declare" if difference.on_purpose else ""
    shared = difference.shared
    return f"Warning: the runs differ in {shared.name}{cause}: {listed(counts)}; {shared.reason}."


def _bytes(table: Table) -> list[str]:
    study = table.sweep.study
    if table.metric != "bits_per_byte" or (study and study.primary == table.metric):
        return []
    return [
        "The arms are compared by bits per byte, as their tokenizers differ: their losses in nats "
        "per token are not comparable."
        + (" The margin is in nats per token and is not used." if study and study.margin else "")
    ]


def _machines(table: Table) -> list[str]:
    lines = []
    usable = [run for run in table.sweep.runs if run.usable]
    for name, reason in (
        ("device", "tokens/s is not comparable"),
        ("threads", "equal runs may differ in the last bits, and tokens/s is not comparable"),
    ):
        counts = Counter(str(v) for run in usable if (v := run.fact(name)) is not None)
        if len(counts) > 1:
            shown = listed(f"{value} ({n} of {counts.total()})" for value, n in counts.items())
            lines.append(f"Warning: the runs differ in {name}: {shown}; {reason}.")
    return lines


def _repeated_seeds(table: Table) -> list[str]:
    counts = Counter((run.arm, run.seed, run.role) for run in table.sweep.runs)
    repeated = [f"{arm!r} seed {seed}" for (arm, seed, _), n in counts.items() if n > 1]
    if not repeated:
        return []
    return [
        f"Warning: more than one run for {listed(repeated)}; n counts runs, not seeds, and "
        "differences use the last of them."
    ]


def _unequal_sizes(table: Table) -> list[str]:
    unequal = [repr(row.arm) for row in table.rows if len({r.parameters for r in row.usable}) > 1]
    if not unequal:
        return []
    return [f"Warning: the runs of {listed(unequal)} differ in their number of parameters."]


def _tuning(table: Table) -> list[str]:
    trials = table.sweep.trials
    lines = []
    counts = Counter(run.arm for run in trials)
    if table.sweep.complete and len(set(counts.values())) > 1:
        shown = listed(f"{arm!r} {n}" for arm, n in counts.items())
        lines.append(f"Warning: the arms did not get the same number of tuning trials: {shown}.")
    for name in ("commit", "data_hash"):
        told = _known(trials, name) - _known(table.sweep.runs, name)
        if told:
            found = listed(sorted(map(str, map(short_hash, told))))
            lines.append(f"Warning: some tuning trials have another {name}: {found}.")
    return lines


def _known(runs: Iterable[Run], name: str) -> set[str]:
    return {value for run in runs if run.finished and (value := run.fact(name)) is not None}


def _failing_reference(table: Table) -> list[str]:
    references = {item.reference for item in table.comparisons}
    lines = []
    for row in table.rows:
        failed = sum(run.failing for run in row.runs)
        if row.arm in references and failed and row.loss:
            lines.append(
                f"Warning: the reference {row.arm!r} fails {failed} of {len(row.runs)}, so "
                "differences to it are over the seeds on which it survived."
            )
    return lines


def _unpaired(table: Table) -> list[str]:
    apart = [repr(c.arm) for c in table.comparisons if c.contrast and not c.contrast.paired]
    if not apart:
        return []
    return [
        f"Warning: {listed(apart)} and the reference share fewer than two seeds: the interval is "
        "Welch's, from two separate means."
    ]


def _same_runs(table: Table) -> list[str]:
    same = [c for c in table.comparisons if c.verdict == "same runs"]
    return [
        f"Warning: {c.arm!r} and {c.reference!r} have the same configuration and are the same "
        "runs, so their difference says nothing."
        for c in same
    ]


def _left_out(table: Table) -> list[str]:
    extra = [path.name for path in table.sweep.extra]
    if not extra:
        return []
    return [f"Left out, as sweep.json does not plan them: {listed(extra)}."]
