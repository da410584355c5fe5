"""``ledger.jsonl``: what a sweep declared, ran and showed, in the order in which it happened.

The file is only ever appended to. Each line holds the hash of the line before, so that a line that
was edited, removed or inserted later can be seen.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock

from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import jsonable
from lm_experiments.rundir.names import LEDGER, damaged
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.study import TUNE
from lm_experiments.rundir.sweeps import SweepRecord

# What an entry tells: what is to be compared, what was typed, a table that was shown, runs that
# were taken from elsewhere, trials that halving ended.
DECLARED, COMMAND, LOOK, TAKEN, HALVED = "declared", "command", "look", "taken", "halved"


@dataclass(frozen=True)
class Declaration:
    """What a sweep says of itself before its results are seen.

    Attributes:
        arms: label -> overrides.
        contrasts: [arm, reference] pairs.
        seeds: the reporting seeds.
        looks: the numbers of seeds after which more are added by rule; empty without a rule.
        margin: the largest difference that counts as none, in the unit of the primary measure.
        tuned: the key that is tuned, the grid and the seeds of the trials; empty without tuning.
        published: what the verdict on each published claim depends on, `published.Claim.rule`.
        primary: the measure that arms are compared by.
    """

    baseline: str
    arms: dict[str, list[str]]
    contrasts: list[list[str]]
    seeds: list[int]
    looks: list[int] = field(default_factory=list)
    margin: float | None = None
    tuned: dict[str, str] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)
    primary: str = "val_loss"


@dataclass(frozen=True)
class Look:
    """A table that was shown.

    Attributes:
        finished: runs that had ended, of those ``planned``.
        tested: whether it showed p-values.
        baseline: the arm that the others were compared with.
    """

    finished: int
    planned: int
    tested: bool
    baseline: str


@dataclass(frozen=True)
class Taken:
    """Runs that were trained for another folder and copied from there, results and all.

    Attributes:
        folder: where they lay.
        runs: directory here -> when its result was written, in UTC, ISO 8601.
        declared: [arm's directory, reference's directory] of the pairs of them whose contrast had
            been declared there before results were shown.
        tested: what was declared there when p-values had been shown; None where none had.
    """

    folder: str
    runs: dict[str, str]
    declared: list[list[str]] = field(default_factory=list)
    tested: Declaration | None = None


@dataclass(frozen=True)
class Entry:
    """One line.

    Attributes:
        event: one of DECLARED, COMMAND, LOOK, TAKEN, HALVED.
        time: in UTC, ISO 8601.
        details: the fields of a `Declaration`, a `Look` or a `Taken`, or what was typed or ended.
        previous: the hash of the line before, empty for the first.
    """

    event: str
    time: str
    details: dict[str, Any]
    previous: str = ""

    @property
    def declaration(self) -> Declaration:
        """What was declared; `InputError` where the entry does not hold it."""
        return build(Declaration, self.details, "details")

    @property
    def look(self) -> Look:
        """What was shown; `InputError` where the entry does not hold it."""
        return build(Look, self.details, "details")

    @property
    def taken(self) -> Taken:
        """Which runs were taken; `InputError` where the entry does not hold it."""
        return build(Taken, self.details, "details")


def declaration_of(record: SweepRecord) -> Declaration:
    """What a sweep's record declares: its study, or the arms and seeds of its commands."""
    study = record.study
    if study is None:
        rows = [row for row in record.runs if row.role != TUNE]
        arms = {row.arm: list(row.overrides) for row in rows}
        baseline = rows[0].arm
        pairs = [[arm, baseline] for arm in arms if arm != baseline]
        return Declaration(baseline, arms, pairs, sorted({row.seed for row in rows}))
    tune = study.tune
    tuned = {}
    if tune is not None:
        grid = ", ".join(f"{value:g}" for value in tune.grid)
        tuned = {"key": tune.key, "grid": grid, "seeds": ", ".join(map(str, tune.seeds))}
        tuned |= {"halving": "true"} if tune.halving else {}
    return Declaration(
        study.baseline,
        study.arms,
        study.compared,
        list(study.seeds),
        list(study.looks),
        study.margin,
        tuned,
        [claim.rule for claim in study.published],
        study.primary,
    )


def record_command(folder: Path, record: SweepRecord) -> None:
    """Add the command of a sweep's record, and what it declares where that is new."""
    append(folder, COMMAND, {"command": record.command})
    declared = declaration_of(record)
    known = [entry.declaration for entry in read_ledger(folder) if entry.event == DECLARED]
    if known[-1:] != [declared]:
        append(folder, DECLARED, declared)


def taken_from(entries: Iterable[Entry]) -> list[Taken]:
    """Return which runs a ledger says were taken from other folders."""
    return [entry.taken for entry in entries if entry.event == TAKEN]


def utc(seconds: float | None = None) -> str:
    """Return a time in seconds since the epoch, or now, as the ledger writes it."""
    return datetime.fromtimestamp(
        time.time() if seconds is None else seconds, timezone.utc
    ).isoformat(timespec="seconds")


def append(
    folder: Path, event: str, details: Declaration | Look | Taken | Mapping[str, str]
) -> None:
    """Add an entry to the folder's ledger."""
    values = details if isinstance(details, Mapping) else dataclasses.asdict(details)
    path = folder / LEDGER
    with FileLock(folder / f".{LEDGER}.lock"):
        content = path.read_bytes() if path.exists() else b""
        # A full disk may have cut the last line short.
        torn = b"\n" if content and not content.endswith(b"\n") else b""
        lines = content.splitlines()
        entry = Entry(event, utc(), jsonable(values), _digest(lines[-1]) if lines else "")
        line = json.dumps(dataclasses.asdict(entry), ensure_ascii=False, allow_nan=False)
        with path.open("ab") as file:
            file.write(torn + line.encode() + b"\n")


def read_ledger(folder: Path) -> list[Entry]:
    """Return the entries of a folder's ledger, none where it has none.

    Raises `InputError` for a line that cannot be read.
    """
    path = folder / LEDGER
    entries = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
        try:
            entries.append(build(Entry, json.loads(line), f"line {number}"))
        except (ValueError, InputError):
            raise damaged(path, f"line {number} is no entry") from None
    return entries


def broken_links(folder: Path) -> list[int]:
    """Return the numbers of the lines that do not follow on the line before as it was written."""
    path = folder / LEDGER
    lines = path.read_bytes().splitlines() if path.exists() else []
    before = ["", *map(_digest, lines)]
    pairs = zip(read_ledger(folder), before, strict=False)
    return [number for number, (entry, digest) in enumerate(pairs, 1) if entry.previous != digest]


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]
