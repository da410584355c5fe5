"""``sweep.json``: which runs a sweep consists of, in the order they were declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import read_object, write_json
from lm_experiments.rundir.names import SWEEP, damaged
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.study import REPORT, ROLES, Study, read_study


@dataclass(frozen=True)
class SweepRow:
    """One planned run.

    Attributes:
        overrides: what makes the arm, as typed.
        role: one of `study.ROLES`.
        setting: the values that tuning chose.
        directory: its name in the sweep's folder.
    """

    arm: str
    seed: int
    directory: str
    config_hash: str | None = None
    overrides: list[str] = field(default_factory=list)
    role: str = REPORT
    setting: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InputError(f"role={self.role} is not known; it can be {', '.join(ROLES)}.")

    @property
    def cell(self) -> tuple[Any, ...]:
        """What makes a row another row: one arm, seed, role and setting has one run."""
        return self.arm, self.seed, self.role, tuple(sorted(self.setting.items()))


@dataclass(frozen=True)
class SweepRecord:
    """What a sweep's folder is: its runs, the keys that were swept, the study where declared."""

    name: str = ""
    command: str = ""
    axes: list[str] = field(default_factory=list)
    study: Study | None = None
    runs: list[SweepRow] = field(default_factory=list)


def read_sweep(folder: Path) -> SweepRecord | None:
    """Return the folder's record, None where there is none.

    Raises:
        InputError: where the file is there and is no such record.
    """
    path = folder / SWEEP
    try:
        values = read_object(path)
    except FileNotFoundError:
        return None
    try:
        return build(SweepRecord, values, "", {"study": _study, "runs": _rows})
    except InputError as error:
        raise damaged(path, str(error).rstrip(".")) from None


def write_sweep(folder: Path, record: SweepRecord) -> None:
    """Write the folder's record, whole or not at all."""
    write_json(folder / SWEEP, dataclasses.asdict(record))


def _study(values: Any) -> Study | None:
    return None if values is None else read_study(values)


def _rows(values: Any) -> list[SweepRow]:
    if not isinstance(values, list) or not all(isinstance(row, Mapping) for row in values):
        raise InputError("runs is not a list of runs.")
    return [build(SweepRow, row, "runs") for row in values]
