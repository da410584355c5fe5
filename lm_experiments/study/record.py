"""``sweep.json``: which runs a sweep consists of, in the order they were declared."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from lm_experiments.errors import InputError
from lm_experiments.invocation import command_line
from lm_experiments.report.table.comparable import Settings, mixed_settings
from lm_experiments.rundir.atomic import jsonable, remove_unfinished
from lm_experiments.rundir.identity import read_identity, read_values
from lm_experiments.rundir.live import is_held, run_state
from lm_experiments.rundir.names import IDENTITY, LOCK, SWEEP
from lm_experiments.rundir.results import FAILED, WAITING, read_result
from lm_experiments.rundir.study import Study
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, read_sweep, write_sweep
from lm_experiments.study.identity import differences
from lm_experiments.study.plan import PlannedRun
from lm_experiments.training.config import RunConfig

# What may be added to a study that has started; its ledger tells when.
EXTENDABLE = (
    "arms",
    "contrasts",
    "controls",
    "evaluate",
    "ladder",
    "looks",
    "published",
    "seeds",
    "tune",
)


def check_recordable(folder: Path, runs: Sequence[PlannedRun], study: Study | None) -> None:
    """Raise InputError where `record_sweep` would, and change nothing."""
    _grown(folder, runs, [], study)


def record_of(config: RunConfig) -> SweepRecord:
    """Return what is recorded of the sweep of a configuration, an empty record before it began."""
    return read_sweep(Path(config.runs_dir).expanduser() / str(config.name)) or SweepRecord()


def record_sweep(
    folder: Path,
    runs: Sequence[PlannedRun],
    axes: Sequence[str],
    study: Study | None = None,
    threads: int | None = None,
    step_times: Mapping[str, float] | None = None,
) -> SweepRecord:
    """Add the planned runs to the folder's ``sweep.json``; those it knows keep their place.

    ``threads`` are those of a run, and ``step_times`` what was timed, to be kept by what continues
    the sweep.

    Raises:
        InputError: where the folder holds another study, or an arm that was configured otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{SWEEP}.lock"):
        remove_unfinished(folder, f".{SWEEP}.*")
        record, replaced = _grown(folder, runs, axes, study)
        times = {**record.step_times, **(step_times or {})}
        record = replace(record, threads=threads, step_times=times)
        _say_replaced(folder, replaced)
        write_sweep(folder, record)
    return record


def _grown(
    folder: Path, runs: Sequence[PlannedRun], axes: Sequence[str], study: Study | None
) -> tuple[SweepRecord, list[SweepRow]]:
    """Return the folder's record with the planned runs, and the rows that give place to them."""
    known = read_sweep(folder) or SweepRecord()
    planned = [_row(run) for run in runs]
    replaced: list[SweepRow] = []
    if study and known.study and not _begun(folder, known.runs):
        # Nothing rests on what was declared: the edited study takes its place.
        kept = {row.directory for row in planned}
        replaced = [row for row in known.runs if row.directory not in kept]
        known = SweepRecord()
    _check_study(folder, known.study, study)
    labels = {_same_run(row): row.arm for row in planned}
    # A label that has grown since then is another name of the same row.
    there = [replace(row, arm=labels.get(_same_run(row), row.arm)) for row in known.runs]
    rows = {row.cell: row for row in there}
    for run, row in zip(runs, planned, strict=True):
        old = rows.setdefault(row.cell, row)
        if old.config_hash != row.config_hash:
            _check_replaceable(folder, old, run)
            replaced.append(old)
            rows[row.cell] = row
    cells = {row.cell for row in planned}
    known_rows = [row for row in rows.values() if row.cell not in cells]
    _check_alike(folder, known_rows, list(zip(planned, runs, strict=True)), study)
    if study and known.study and not study.looks and not known.study.looks:
        # Seeds are added, and none is forgotten.
        study = replace(study, seeds=list(dict.fromkeys([*known.study.seeds, *study.seeds])))
    record = SweepRecord(
        name=folder.name,
        command=command_line(),
        axes=list(dict.fromkeys([*known.axes, *axes])),
        study=study or known.study,
        step_times=known.step_times,
        runs=list(rows.values()),
    )
    return record, replaced


def _begun(folder: Path, rows: Sequence[SweepRow]) -> bool:
    """Return whether a run is being trained, was interrupted, or has a result but a failure."""
    directories = [folder / row.directory for row in rows]
    states = (run_state(directory, read_result(directory)) for directory in directories)
    return any(state not in (WAITING, FAILED) for state in states)


def _check_study(folder: Path, there: Study | None, study: Study | None) -> None:
    if there is None or study is None:
        return
    # A rung that is added is not another baseline.
    old, new = ({**asdict(s), "baseline": s.declared_baseline} for s in (there, study))
    changed = [
        f"arm {arm!r}: {own} there, {study.arms.get(arm, 'no such arm')} now"
        for arm, own in there.arms.items()
        if study.arms.get(arm) != own
    ]
    changed += [
        f"{key}: {old[key]!r} there, {new[key]!r} now"
        for key in new
        if key not in EXTENDABLE and old[key] != new[key]
    ]
    if changed:
        raise InputError(
            f"{folder} holds this study as it was before it was edited ({'; '.join(changed)}); "
            "put it back, or type name=... to start it anew beside."
        )


def _check_alike(
    folder: Path,
    known: Sequence[SweepRow],
    planned: Sequence[tuple[SweepRow, PlannedRun]],
    study: Study | None,
) -> None:
    """Refuse runs that differ from those of the folder in more than their arms change."""
    there = [Settings(row, read_values(folder / row.directory)) for row in known]
    now = [Settings(row, jsonable(run.values)) for row, run in planned]
    if mixed := mixed_settings([*there, *now], study.tune.key if study and study.tune else None):
        key, groups = next(iter(mixed.items()))
        parts = [f"{value} in {rows[0].directory}" for value, rows in groups.items()]
        more = f", and in {len(mixed) - 1} more settings" if len(mixed) > 1 else ""
        raise InputError(
            f"The runs of {folder} would differ in {key} ({', '.join(parts)}){more}, which their "
            "arms do not change; type the settings of the runs there, or name=... to put this "
            "into another folder."
        )


def _row(run: PlannedRun) -> SweepRow:
    return SweepRow(
        arm=run.config.arm,
        seed=run.config.seed,
        directory=run.directory.name,
        config_hash=run.config_hash,
        overrides=run.config.arm_overrides,
        role=run.spec.role,
        setting=dict(run.spec.setting),
        changes=list(run.changes),
        by_seed=list(run.by_seed),
        seconds=None if run.seconds is None else round(run.seconds, 1),
    )


def _same_run(row: SweepRow) -> tuple[Any, ...]:
    """Return what two rows share that are one run under two labels."""
    return row.config_hash, row.role, tuple(row.overrides), tuple(row.setting.items())


def _check_replaceable(folder: Path, there: SweepRow, run: PlannedRun) -> None:
    """Refuse to replace a run of another configuration, unless it was never begun, or failed."""
    directory = folder / there.directory
    state = run_state(directory, read_result(directory))
    busy = [path for path in _directories(folder) if is_held(path / LOCK)]
    if state in (WAITING, FAILED) and not busy:
        return
    changed = ""
    if (directory / IDENTITY).exists():
        changed = f" ({differences(read_identity(directory).values, run.values)}, there and now)"
    holder = f"; {busy[0].name} is being trained" if busy else ""
    raise InputError(
        f"{folder} holds arm {there.arm!r}, seed {there.seed}, {state}, with other settings"
        f"{changed}{holder}; type name=... to put this into another folder, or remove {directory} "
        "to replace it."
    )


def _directories(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]


def _say_replaced(folder: Path, rows: Sequence[SweepRow]) -> None:
    """Say which runs were replaced; what had not begun leaves no directory behind."""
    for row in rows:
        directory = folder / row.directory
        if run_state(directory, read_result(directory)) == WAITING:
            shutil.rmtree(directory, ignore_errors=True)
    if rows:
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        print(
            f"{folder}: {rows[0].directory}{more}, planned with other settings and not begun or "
            "failed, gave place to this command's."
        )
