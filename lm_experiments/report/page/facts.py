"""What stands around the numbers of a page: costs, changes, failures, samples, origin."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_experiments.report import consistency
from lm_experiments.report.collect import Run, Sweep
from lm_experiments.report.consistency import Answer, runs_of
from lm_experiments.report.table.columns import NOTHING, fixed, si
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.report.table.warnings import listed
from lm_experiments.rundir.ledger import COMMAND, DECLARED, HALVED, LOOK, TAKEN, Entry
from lm_experiments.rundir.metrics import read_rows
from lm_experiments.rundir.names import LOG, SAMPLES
from lm_experiments.rundir.study import TUNE
from lm_experiments.rundir.sweeps import command_here, read_sweep
from lm_experiments.rundir.words import counted, duration, size

# What is shown of each: a page stays small whatever its runs have written.
MOST_FAILURES, MOST_SAMPLES, MOST_ENTRIES = 10, 6, 60
LOG_LINES, LOG_CHARACTERS, SAMPLE_CHARACTERS = 25, 3000, 1200
COST_TITLES = (
    "arm",
    "parameters",
    "FLOPs/run",
    "time/run",
    "tokens/s",
    "peak memory",
    "runs",
    "time",
)
# The page has the contrasts themselves.
CHECKS = [ask for ask in consistency.QUESTIONS if ask is not consistency.contrasts_as_declared]


@dataclass(frozen=True)
class Change:
    """A key in which an arm differs from the baseline; `before` None where that is not known."""

    key: str
    before: str | None
    after: str


@dataclass(frozen=True)
class Failure:
    """A run without a usable loss, with the end of its log."""

    title: str
    error: str | None
    log: str


@dataclass(frozen=True)
class Sample:
    """What an arm wrote after a prompt, at its last step."""

    arm: str
    seed: int
    step: int
    text: str


def cost_rows(table: Table) -> list[list[str]]:
    """Return the texts under `COST_TITLES` for each arm; times are of training alone."""
    runs = runs_of(table.sweep)
    return [_costs(row, [run for run in runs if run.arm == row.arm]) for row in table.rows]


def cost_sentence(sweep: Sweep) -> str:
    """Return what all runs took together, trials of tuning included."""
    runs = [run for run in runs_of(sweep) if run.result.seconds is not None]
    if not runs:
        return "What these runs took is not known yet."
    seconds, flops = _total(runs, "seconds"), _total(runs, "train_flops")
    tuning = [run for run in runs if run.role == TUNE]
    trials = f"; {duration(_total(tuning, 'seconds'))} of it were spent on tuning" if tuning else ""
    return (
        f"{counted(len(runs), 'run')} took {duration(seconds)} of training and {si(flops)} FLOPs, "
        f"validation and starts not counted{trials}."
    )


def changes(table: Table) -> dict[str, list[Change]]:
    """Return for each arm but the baseline the keys in which it differs from the baseline.

    Where no run says what determines its result, what was typed for the arm stands for it.
    """
    rows = {row.arm: row for row in table.rows}
    before = _known(rows[table.baseline])
    return {arm: _changes(before, row) for arm, row in rows.items() if arm != table.baseline}


def failures(sweep: Sweep) -> tuple[list[Failure], int]:
    """Return the first failing runs, and how many there are in all."""
    failing = [run for run in runs_of(sweep) if run.failing]
    return [_failure(run) for run in failing[:MOST_FAILURES]], len(failing)


def samples(table: Table) -> dict[str, list[Sample]]:
    """Return by prompt what the arms wrote, each its first run that wrote something."""
    found: dict[str, list[Sample]] = {}
    for row in table.rows:
        own = next((texts for run in row.known if (texts := _last_samples(run))), {})
        for prompt, sample in own.items():
            found.setdefault(prompt, []).append(sample)
    return dict(list(found.items())[:MOST_SAMPLES])


def ledger_rows(sweep: Sweep) -> list[tuple[str, str, str]]:
    """Return the newest entries of the ledger as time, event and what it tells, oldest first."""
    parts = sweep.parts or (sweep,)
    entries = sorted((entry for part in parts for entry in part.ledger), key=lambda e: e.time)
    return [(entry.time, entry.event, _told(entry)) for entry in entries[-MOST_ENTRIES:]]


def checks(sweep: Sweep) -> list[Answer]:
    """Return the answers to what a reviewer asks of a folder; none of sweeps that were merged."""
    return [] if sweep.parts else [ask(sweep) for ask in CHECKS]


def commands(sweep: Sweep) -> list[str]:
    """Return what trains the runs again, or continues them: one command for each sweep."""
    folders = [part.directory for part in sweep.parts or (sweep,)]
    found = [(folder, read_sweep(folder)) for folder in folders]
    return [command_here(folder, record) for folder, record in found if record and record.command]


def provenance(sweep: Sweep) -> dict[str, str]:
    """Return where the numbers come from: code, versions, data, hardware, seeds, folders."""
    runs = [run for run in runs_of(sweep) if run.finished]
    known = {name: _distinct(map(text, runs)) for name, text in _FACTS.items()}
    folders = [str(part.directory) for part in sweep.parts or (sweep,)]
    known |= {"seeds": _distinct(run.seed for run in runs), "folder": _distinct(folders)}
    return {name: listed(values) for name, values in known.items() if values}


def shortened(text: str, longest: int) -> str:
    """Return the beginning of a text, marked where it was cut."""
    return text if len(text) <= longest else f"{text[:longest]} [...]"


def _costs(row: Row, runs: Sequence[Run]) -> list[str]:
    flops, seconds, memory = (
        row.mean(name) for name in ("train_flops", "seconds", "peak_memory_bytes")
    )
    spent = _total(runs, "seconds")
    return [
        row.arm,
        fixed(row.first("parameters"), ",.0f"),
        si(flops),
        NOTHING if seconds is None else duration(seconds),
        fixed(row.mean("tokens_per_second"), ",.0f"),
        NOTHING if memory is None else size(memory),
        str(len(runs)),
        duration(spent) if spent else NOTHING,
    ]


def _total(runs: Iterable[Run], fact: str) -> float:
    return math.fsum(amount for run in runs if (amount := run.fact(fact)) is not None)


def _known(row: Row) -> Run | None:
    return next((run for run in row.known if run.values), None)


def _changes(before: Run | None, row: Row) -> list[Change]:
    after = _known(row)
    if before is None or after is None:
        typed = row.known[0].overrides if row.known else {}
        return [Change(key, None, value) for key, value in typed.items()]
    apart = {"seed", *before.row.by_seed, *after.row.by_seed}
    # An option that the arm has no longer went with the component that the arm replaces.
    keys = sorted(key for key in after.values if key not in apart)
    texts = ((key, _text(before.values, key), _text(after.values, key)) for key in keys)
    return [Change(key, one, str(other)) for key, one, other in texts if one != other]


def _text(values: Mapping[str, Any], key: str) -> str | None:
    value = values.get(key)
    if key not in values or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _failure(run: Run) -> Failure:
    step = run.result.outcome_step
    at = "" if step is None else f" at step {step:,}"
    error = run.result.error
    log = _tail(run, (error and error.traceback) or LOG)
    setting = "".join(f" {key}={value:g}" for key, value in run.setting.items())
    return Failure(f"{run.arm}, seed {run.seed}{setting}: {run.outcome}{at}", run.error, log)


def _tail(run: Run, name: str) -> str:
    """Return the end of a run's log; empty where there is none."""
    path = run.directory / Path(name).name
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LOG_CHARACTERS))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-LOG_LINES:])


def _last_samples(run: Run) -> dict[str, Sample]:
    found = {}
    for row in read_rows(run.directory / SAMPLES):
        text = shortened(str(row.get("text")), SAMPLE_CHARACTERS)
        found[str(row.get("prompt"))] = Sample(run.arm, run.seed, row["step"], text)
    return found


def _told(entry: Entry) -> str:
    return _EVENTS[entry.event](entry)


def _declared(entry: Entry) -> str:
    said = entry.declaration
    seeds = ", ".join(map(str, said.seeds))
    compared = counted(len(said.contrasts), "contrast")
    return f"{counted(len(said.arms), 'arm')}, {compared}, baseline {said.baseline}, seeds {seeds}"


def _looked(entry: Entry) -> str:
    look = entry.look
    p = "with p-values" if look.tested else "without p-values"
    return f"a table of {look.finished} of {look.planned} runs against {look.baseline}, {p}"


# What each event of a ledger tells.
_EVENTS: Mapping[str, Callable[[Entry], str]] = {
    COMMAND: lambda entry: str(entry.details.get("command", "")),
    DECLARED: _declared,
    LOOK: _looked,
    TAKEN: lambda entry: f"{counted(len(entry.taken.runs), 'run')} from {entry.taken.folder}",
    HALVED: lambda entry: f"{counted(len(entry.details), 'trial')} ended by halving",
}


def _distinct(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in dict.fromkeys(values) if value is not None]


def _versions(run: Run) -> str | None:
    return ", ".join(f"{name} {at}" for name, at in run.result.versions.items()) or None


# What finished runs share, or differ in: every value that one of them has.
_FACTS: Mapping[str, Callable[[Run], str | int | None]] = {
    "commit": lambda run: run.commit,
    "code": lambda run: run.result.code_hash,
    "versions": _versions,
    "data": lambda run: run.result.data_hash,
    "tokenizer": lambda run: run.result.tokenizer_hash,
    "machine": lambda run: run.result.machine,
    "device": lambda run: run.result.device,
    "processes": lambda run: run.result.world_size,
    "strategy": lambda run: run.result.strategy,
    "precision": lambda run: run.result.precision,
    "threads": lambda run: run.result.threads,
}
