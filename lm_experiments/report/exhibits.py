"""What a gallery holds of each study: its table, NAME.json, and NAME.origin.json beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.report.collect import Run, Sweep, collect
from lm_experiments.report.statistics.published import Finding
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.rows import Table, build_table
from lm_experiments.report.table.saved import not_a_table, read_table, table_hash
from lm_experiments.rundir.atomic import read_object, write_json
from lm_experiments.rundir.names import REPRODUCED
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.published import Claim
from lm_experiments.rundir.reproduced import Reproduction, read_reproduction
from lm_experiments.rundir.words import counted, duration

ORIGIN = ".origin.json"


@dataclass(frozen=True)
class Retrained:
    """A cell that was trained again: its arm and seed, what came of it, and when (ISO 8601)."""

    cell: str
    verdict: str
    time: str


@dataclass(frozen=True)
class Origin:
    """Where a table comes from.

    Attributes:
        table: the SHA-256 of its file, in hex.
        runs: how many were trained, trials too.
        seconds: of all their processes together: CPU time on CPUs, else the time that devices were
            held; None where it is not known.
        device: CPU, or device.
        retrained: the cell of this very table that was trained again last.
    """

    table: str
    runs: int
    seconds: float | None = None
    device: str = "device"
    retrained: Retrained | None = None

    @property
    def cost(self) -> str:
        """What the runs took, as a sentence."""
        if self.seconds is None:
            return f"{counted(self.runs, 'run')}, whose time is not known."
        return f"{counted(self.runs, 'run')} took {duration(self.seconds)} of {self.device} time."


@dataclass(frozen=True)
class Exhibit:
    """A study with published claims, by its `table.json` (`content`)."""

    content: Mapping[str, Any]
    origin: Origin

    @property
    def name(self) -> str:
        """The sweep's name."""
        return str(self.content["name"])

    @property
    def command(self) -> str:
        """What trains it."""
        return str(self.content["command"])

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Its claims with their verdicts."""
        return tuple(_finding(item) for item in self.content["published"])

    def as_declared(self, claim: Claim) -> Claim:
        """A claim by the arms' own labels, where a ladder holds it against its largest rung."""
        rungs = (self.content["study"]["ladder"] or {}).get("rungs", [])
        return claim.called(
            {label: arm for rung in rungs[-1:] for arm, label in rung["arms"].items()}
        )

    @property
    def tokens(self) -> float:
        """The training tokens of its longest arm."""
        return max((self.scale(arm["arm"])[1] or 0.0 for arm in self.content["arms"]), default=0.0)

    def scale(self, label: str) -> tuple[float | None, float | None, int]:
        """The parameters, the training tokens and the number of runs of an arm."""
        found = [arm for arm in self.content["arms"] if arm["arm"] == label]
        if not found:
            return None, None, 0
        runs = found[0]["main"]["runs"]
        tokens = next((run["tokens"] for run in runs if run["tokens"] is not None), None)
        return found[0]["parameters"], tokens, len(runs)

    @property
    def setting(self) -> str:
        """The learning rates, as a sentence."""
        if tune := self.content["study"]["tune"]:
            return f"Each arm at its own best {tune['key']}, searched alike for all."
        runs = [run for arm in self.content["arms"] for run in arm["main"]["runs"][:1]]
        rates = sorted({run["learning_rate"] for run in runs if run["learning_rate"]})
        return f"Not tuned: learning rate {' and '.join(f'{rate:g}' for rate in rates)}."


def read_folders(folders: Sequence[Path]) -> list[tuple[Exhibit, Table]]:
    """Read the folders of sweeps.

    Raises `InputError` for a sweep without claims, without a table, whose table is not that of its
    runs, and for two sweeps of one name.
    """
    read = [_of_folder(folder) for folder in folders]
    names = [exhibit.name for exhibit, _ in read]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InputError(f"Two sweeps are called {repeated[0]}; rename one of their folders.")
    return read


def read_gallery(gallery: Path, without: Sequence[str] = ()) -> list[Exhibit]:
    """Read what a gallery holds, but for studies `without` which it is wanted.

    Raises `InputError` for damage, and for a table that is not the one it was made from.
    """
    paths = {path.name.removesuffix(ORIGIN): path for path in gallery.glob(f"*{ORIGIN}")}
    return [
        _of_gallery(table, _read_origin(path))
        for name, path in sorted(paths.items())
        if name not in without and (table := gallery / f"{name}.json").is_file()
    ]


def reproductions(folders: Sequence[Path]) -> list[Reproduction]:
    """Read what was trained again beside these folders."""
    paths = {path for each in folders for path in each.resolve().parent.glob(f"*/{REPRODUCED}")}
    return [read_reproduction(path.parent) for path in sorted(paths)]


def with_retrained(exhibit: Exhibit, records: Sequence[Reproduction]) -> Exhibit:
    """Take up the last cell of this very table that was trained again."""
    mine = [each for each in records if each.cells and each.table == exhibit.origin.table]
    known = exhibit.origin.retrained
    found = [*map(_last, mine), *([known] if known else [])]
    last = max(found, key=lambda each: each.time, default=None)
    return dataclasses.replace(exhibit, origin=dataclasses.replace(exhibit.origin, retrained=last))


def write_origin(gallery: Path, exhibit: Exhibit) -> Path:
    """Write what the table lacks, and return where."""
    path = gallery / f"{exhibit.name}{ORIGIN}"
    write_json(path, dataclasses.asdict(exhibit.origin))
    return path


def _of_folder(folder: Path) -> tuple[Exhibit, Table]:
    table, path = build_table(collect(folder)), folder / "table.json"
    if not table.published:
        raise InputError(
            f"{folder} holds no published claims; a study has them under published:, see "
            "docs/studies.md."
        )
    if not path.is_file() or path.read_text(encoding="utf-8") != json_text(table):
        raise InputError(
            f"{path} is missing, or is not the table of the runs beside it; make it: python "
            f"scripts/table.py {folder}"
        )
    return Exhibit(read_table(path), _origin(table.sweep, table_hash(path))), table


def _read_origin(path: Path) -> Origin:
    try:
        return build(Origin, read_object(path), "", {"retrained": _retrained})
    except InputError:
        raise InputError(
            f"{path} is damaged; put it back from a copy, or remove it and give the folder of its "
            "runs."
        ) from None


def _of_gallery(path: Path, origin: Origin) -> Exhibit:
    if table_hash(path) != origin.table:
        raise InputError(
            f"{path} is not the table that {path.stem}{ORIGIN} names; put it back from a copy, or "
            "remove it and give the folder of its runs."
        )
    exhibit = Exhibit(read_table(path), origin)
    try:
        _ = exhibit.findings, exhibit.setting, exhibit.tokens
    except (KeyError, TypeError, InputError) as error:
        raise not_a_table(path) from error
    return exhibit


def _origin(sweep: Sweep, digest: str) -> Origin:
    runs = list({run.directory: run for run in (*sweep.runs, *sweep.trials)}.values())
    took = [seconds for run in runs if (seconds := _processor_seconds(run)) is not None]
    device = "CPU" if all(run.result.device == "cpu" for run in runs) else "device"
    return Origin(digest, len(runs), sum(took) if took else None, device)


def _processor_seconds(run: Run) -> float | None:
    """Of all its processes: CPU time on CPUs, else the time its devices were held."""
    result = run.result
    one = result.cpu_seconds if result.device == "cpu" else result.wall_seconds
    return None if one is None else one * (result.world_size or 1)


def _finding(item: Mapping[str, Any]) -> Finding:
    known = {field.name for field in dataclasses.fields(Finding)}
    own = {key: value for key, value in item.items() if key in known}
    return build(Finding, own, "published", {"claim": _claim, "span": _span})


def _claim(value: Any) -> Claim:
    return build(Claim, value, "claim")


def _span(value: Any) -> tuple[float, float] | None:
    return (value[0], value[1]) if value else None


def _retrained(value: Any) -> Retrained | None:
    return build(Retrained, value, "retrained") if value else None


def _last(record: Reproduction) -> Retrained:
    cell = record.cells[-1]
    return Retrained(cell.cell, cell.verdict, record.time)
