"""``sweep.json``: which runs a sweep consists of, in the order they were declared."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import read_object, write_json
from lm_experiments.rundir.names import CONFIG, RESULT, SWEEP, damaged
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.results import read_result
from lm_experiments.rundir.study import REPORT, ROLES, Study, read_study


@dataclass(frozen=True)
class SweepRow:
    """One planned run.

    Attributes:
        overrides: what makes the arm, as typed.
        role: one of `study.ROLES`.
        setting: the values that tuning chose.
        directory: its name in the sweep's folder.
        changes: the keys of its identity's values that the arm changes, beside what all arms
            share; None where no plan says so.
        by_seed: the keys whose values follow from the seed, as typed: ``key=${seed}``.
        seconds: how long the plan expected it to take, None where it said nothing.
    """

    arm: str
    seed: int
    directory: str
    config_hash: str | None = None
    overrides: list[str] = field(default_factory=list)
    role: str = REPORT
    setting: dict[str, float] = field(default_factory=dict)
    changes: list[str] | None = None
    by_seed: list[str] = field(default_factory=list)
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InputError(f"role={self.role} is not known; it can be {', '.join(ROLES)}.")

    @property
    def cell(self) -> tuple[Any, ...]:
        """What makes a row another row: one arm, seed, role and setting has one run."""
        return self.arm, self.seed, self.role, tuple(sorted(self.setting.items()))


@dataclass(frozen=True)
class SweepRecord:
    """A sweep: its runs, the keys that were swept, the study if one was declared.

    Attributes:
        name: its folder's, when the command was typed; `open_sweep` gives that of now.
        command: what was typed last to start or continue it.
        axes: the swept keys.
        threads: CPU threads of a run, which a command that continues the sweep keeps.
        step_times: for arms of equal seconds, what a step takes relative to the baseline's, by
            the hash of what is timed; measured once, so that steps stay the same.
    """

    name: str = ""
    command: str = ""
    axes: list[str] = field(default_factory=list)
    study: Study | None = None
    threads: int | None = None
    step_times: dict[str, float] = field(default_factory=dict)
    runs: list[SweepRow] = field(default_factory=list)


def read_sweep(folder: Path) -> SweepRecord | None:
    """Return the folder's record, None where there is none; `InputError` where it is damaged."""
    path = folder / SWEEP
    try:
        values = read_object(path)
    except FileNotFoundError:
        return None
    try:
        return build(SweepRecord, values, "", {"study": _study, "runs": _rows})
    except InputError as error:
        raise damaged(path, str(error).rstrip(".")) from None


def open_sweep(folder: Path) -> SweepRecord:
    """Return the folder's record; without ``sweep.json``, a record of the runs found in it.

    Its name is that of the folder, which may have been renamed. Raises `InputError` for a folder
    without runs, with the folder that may be meant.
    """
    return opened(folder, read_sweep(folder))


def opened(folder: Path, record: SweepRecord | None) -> SweepRecord:
    """Return what was read of a folder as `open_sweep` does."""
    if not folder.is_dir():
        names = [path.name for path in folder.parent.glob("*") if path.is_dir()]
        near = difflib.get_close_matches(folder.name, names, n=1, cutoff=0.4)
        hint = "type the folder of a sweep, runs/NAME for one started with name=NAME."
        hint = f"did you mean {folder.parent / near[0]}?" if near else hint
        raise InputError(f"There is no folder {folder}; {hint}")
    record = record or SweepRecord()
    found = map(_found_row, run_directories(folder))
    runs = record.runs or sorted(found, key=lambda row: (row.arm, row.seed))
    if not runs:
        raise _no_runs(folder)
    return dataclasses.replace(record, name=folder.resolve().name, runs=runs)


def command_here(folder: Path, record: SweepRecord) -> str:
    """Return the command that continues a sweep where it lies now, by the name that it has now."""
    words = shlex.split(record.command)
    typed = dict(word.partition("=")[::2] for word in words)
    parent, name = folder.resolve().parent, folder.resolve().name
    changed = {} if record.name in ("", name) else {"name": name}
    runs_dir = Path(typed.get("runs_dir", "runs")).expanduser()
    # A relative one is of the folder where the command was typed, which is not known.
    there = runs_dir.resolve() == parent if runs_dir.is_absolute() else runs_dir.name == parent.name
    if not there:
        changed["runs_dir"] = str(folder.parent)
    if not changed:
        return record.command
    kept = [word for word in words if word.partition("=")[0] not in changed]
    return shlex.join([*kept, *(f"{key}={value}" for key, value in changed.items())])


def run_directories(folder: Path) -> list[Path]:
    """Return the run directories in a folder, planned or not, by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and _is_run(path))


def write_sweep(folder: Path, record: SweepRecord) -> None:
    """Write the folder's record, whole or not at all."""
    write_json(folder / SWEEP, dataclasses.asdict(record))


def _study(values: Any) -> Study | None:
    return None if values is None else read_study(values)


def _rows(values: Any) -> list[SweepRow]:
    if not isinstance(values, list) or not all(isinstance(row, Mapping) for row in values):
        raise InputError("runs is not a list of runs.")
    return [build(SweepRow, row, "runs") for row in values]


def _is_run(directory: Path) -> bool:
    return (directory / CONFIG).is_file() or (directory / RESULT).is_file()


def _found_row(directory: Path) -> SweepRow:
    with contextlib.suppress(InputError):
        if result := read_result(directory):
            return SweepRow(result.arm, result.seed, directory.name)
    # Imported here because a planned sweep needs no YAML.
    import yaml

    from lm_experiments.rundir.yaml_text import load_yaml

    try:
        values = load_yaml((directory / CONFIG).read_bytes())
        return SweepRow(str(values["arm"]), int(values["seed"]), directory.name)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        raise damaged(directory / CONFIG, "it names no arm and seed") from None


def _no_runs(folder: Path) -> InputError:
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    sweeps = [path for path in inside if (path / SWEEP).is_file() or run_directories(path)]
    if _is_run(folder):
        reason = f"is a single run; type the folder of its sweep, {folder.parent}"
    elif sweeps:
        reason = f"holds sweeps, not runs; type one of them, such as {sweeps[0]}"
    else:
        reason = (
            f"holds no runs, which are folders with a {CONFIG} or a {RESULT}; type the folder of "
            "a sweep, such as runs/NAME"
        )
    return InputError(f"{folder} {reason}.")
