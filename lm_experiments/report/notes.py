"""The sentences around a table: how complete it is, how to read it, and what to beware of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from lm_experiments.report.collect import Run
from lm_experiments.report.rows import Table, first_words

ONE_SEED = (
    "One seed per arm: differences are exploratory and no arm is claimed to be better (n = 1). "
    "Add seed=0,1,2 to the command to measure the spread between seeds."
)
SOME_SINGLE = "Arms with n = 1 have no interval, and no claim can be made about them."
SEVERAL_SEEDS = (
    "sd is over seeds (ddof 1); +/- is the half-width of the 95 % t interval of the mean. "
    "Differences are paired over the seeds an arm shares with the baseline; "
    "below zero is a lower loss."
)
LISTED_FAILURES = 5
HASH_CHARACTERS = 12

# What should be the same in every run of a table: name, value, and why it matters.
_SHARED: tuple[tuple[str, Callable[[Run], str | None], str], ...] = (
    ("data_hash", lambda run: _short(run.data_hash), "they did not use the same data"),
    ("val_tokens", lambda run: _count(run.val_tokens), "their losses are over different text"),
    ("tokens", lambda run: _count(run.tokens), "they did not train on the same budget"),
    ("commit", lambda run: _short_commit(run.commit), "they did not run the same code"),
)


def headline(table: Table) -> str:
    """One line on completeness, such as "12 arms, 36 runs, all finished: 35 ok, 1 FAILED"."""
    runs = table.sweep.runs
    finished = sum(run.finished for run in runs)
    verdicts = Counter(run.verdict for run in runs)
    counts = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items())
    arms = f"{len(table.rows)} {'arm' if len(table.rows) == 1 else 'arms'}"
    if finished < len(runs):
        return f"UNFINISHED: {finished} of {len(runs)} runs finished, {arms} ({counts})."
    return f"{arms}, {len(runs)} of {len(runs)} runs finished ({counts})."


def notes(table: Table) -> list[str]:
    """The lines under the table: reading aid, provenance, failures, warnings."""
    return [*_reading(table), *_provenance(table), *_failures(table), *warnings(table)]


def warnings(table: Table) -> list[str]:
    """One line for each way in which the runs of this table are not comparable."""
    lines = []
    for name, value, reason in _SHARED:
        counts = Counter(v for run in _usable(table) if (v := value(run)) is not None)
        if len(counts) > 1:
            shown = ", ".join(f"{v} ({n} of {counts.total()})" for v, n in sorted(counts.items()))
            lines.append(f"Warning: the runs differ in {name}: {shown}; {reason}.")
    return [*lines, *_repeated_seeds(table), *_unequal_sizes(table), *_left_out(table)]


def _reading(table: Table) -> list[str]:
    if table.most_seeds == 0:
        return ["No run has a usable final loss yet."]
    lines = [ONE_SEED] if table.most_seeds == 1 else [SEVERAL_SEEDS]
    if table.most_seeds > 1 and any(row.loss and row.loss.n == 1 for row in table.rows):
        lines.append(SOME_SINGLE)
    if not any(row.is_baseline and row.loss for row in table.rows):
        lines.append(f"The baseline {table.baseline!r} has no usable run: no differences.")
    return lines


def _provenance(table: Table) -> list[str]:
    runs = _usable(table)
    facts = [
        ("seeds", [str(seed) for seed in sorted({run.seed for run in table.sweep.runs})]),
        ("steps", _distinct(_count(run.steps) for run in runs)),
        ("training tokens", _distinct(_count(run.tokens) for run in runs)),
        ("validation tokens", _distinct(_count(run.val_tokens) for run in runs)),
        ("data", _distinct(_short(run.data_hash) for run in runs)),
        ("commit", _distinct(_short_commit(run.commit) for run in runs)),
        ("threads", _distinct(_count(run.threads) for run in runs)),
    ]
    known = [f"{name} {_listed(values)}" for name, values in facts if values]
    line = "; ".join(known)
    return [f"{line[:1].upper()}{line[1:]}."] if runs else []


def _failures(table: Table) -> list[str]:
    failed = [run for run in table.sweep.runs if run.status == "failed"]
    lines = [
        f"FAILED {run.arm} seed {run.seed}: {first_words(run.error or 'no error recorded', 160)} "
        f"(see {run.directory.name}/train.log)"
        for run in failed[:LISTED_FAILURES]
    ]
    hidden = len(failed) - len(lines)
    return [*lines, f"{hidden} more runs FAILED."] if hidden else lines


def _repeated_seeds(table: Table) -> list[str]:
    counts = Counter((run.arm, run.seed) for run in table.sweep.runs)
    repeated = [f"{arm!r} seed {seed}" for (arm, seed), n in counts.items() if n > 1]
    if not repeated:
        return []
    return [f"Warning: more than one run for {_listed(repeated)}; n counts runs, not seeds."]


def _unequal_sizes(table: Table) -> list[str]:
    unequal = [repr(row.arm) for row in table.rows if len({r.parameters for r in row.usable}) > 1]
    if not unequal:
        return []
    return [f"Warning: the runs of {_listed(unequal)} differ in their number of parameters."]


def _left_out(table: Table) -> list[str]:
    extra = [path.name for path in table.sweep.extra]
    if not extra:
        return []
    return [f"Left out, as sweep.json does not plan them: {_listed(extra)}."]


def _usable(table: Table) -> list[Run]:
    return [run for row in table.rows for run in row.usable]


def _distinct(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value is not None})


def _listed(values: Iterable[str], limit: int = 6) -> str:
    items = list(values)
    more = [f"and {len(items) - limit} more"] if len(items) > limit else []
    return ", ".join([*items[:limit], *more])


def _count(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def _short(digest: str | None) -> str | None:
    return None if digest is None else digest[:HASH_CHARACTERS]


def _short_commit(commit: str | None) -> str | None:
    if commit is None:
        return None
    digest, plus, dirty = commit.partition("+")
    return digest[:HASH_CHARACTERS] + plus + dirty
