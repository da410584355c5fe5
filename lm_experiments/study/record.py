"""``sweep.json``: which runs a sweep consists of, in the order they were declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from filelock import FileLock

from lm_experiments.errors import InputError
from lm_experiments.invocation import command_line
from lm_experiments.rundir.atomic import remove_unfinished
from lm_experiments.rundir.names import SWEEP
from lm_experiments.rundir.results import DONE, run_status
from lm_experiments.rundir.study import Study
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, read_sweep, write_sweep
from lm_experiments.study.keys import flat, use_of
from lm_experiments.study.plan import PlannedRun
from lm_experiments.training.config import load_config, plain_values

# What may be added to a study that has started: seeds, and what tuning found.
EXTENDABLE = ("seeds", "tune")
SHOWN_DIFFERENCES = 3


def record_sweep(
    folder: Path, runs: Sequence[PlannedRun], axes: Sequence[str], study: Study | None = None
) -> None:
    """Add the planned runs to the folder's ``sweep.json``; those it knows keep their place.

    Raises:
        InputError: where the folder holds another study, or an arm that was configured otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{SWEEP}.lock"):
        remove_unfinished(folder, f".{SWEEP}.*")
        known = read_sweep(folder) or SweepRecord()
        _check_study(folder, known.study, study)
        rows = {row.cell: row for row in known.runs}
        for run in runs:
            row = SweepRow(
                arm=run.config.arm,
                seed=run.config.seed,
                directory=run.directory.name,
                config_hash=run.config_hash,
                overrides=run.config.arm_overrides,
                role=run.spec.role,
                setting=dict(run.spec.setting),
            )
            there = rows.setdefault(row.cell, row)
            if there.config_hash != row.config_hash:
                _check_replaceable(folder, there, run)
                rows[row.cell] = row
        if study and known.study:
            # Seeds are added, and none is forgotten.
            study = replace(study, seeds=list(dict.fromkeys([*known.study.seeds, *study.seeds])))
        record = SweepRecord(
            name=folder.name,
            command=command_line(),
            axes=list(dict.fromkeys([*known.axes, *axes])),
            study=study or known.study,
            runs=list(rows.values()),
        )
        write_sweep(folder, record)


def _check_study(folder: Path, there: Study | None, study: Study | None) -> None:
    if there is None or study is None:
        return
    old, new = asdict(there), asdict(study)
    changed = [
        f"{key}: {old[key]!r} there, {new[key]!r} now"
        for key in new
        if key not in EXTENDABLE and old[key] != new[key]
    ]
    if changed:
        raise InputError(
            f"{folder} holds this study as it was before it was edited ({'; '.join(changed)}); "
            "put it back, or type name=... to start it anew beside."
        )


def _check_replaceable(folder: Path, there: SweepRow, run: PlannedRun) -> None:
    """Let a run that never finished be replaced; refuse to mix two configurations of one arm."""
    directory = folder / there.directory
    if run_status(directory) != DONE:
        return
    old, new = (flat(plain_values(config)) for config in (load_config(directory), run.config))
    changed = [
        f"{key}: {old.get(key)!r} there, {new.get(key)!r} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and use_of(key).in_hash
    ]
    differences = "; ".join(changed[:SHOWN_DIFFERENCES]) or "its corpus or its code has changed"
    raise InputError(
        f"{folder} holds arm {run.config.arm!r}, seed {run.config.seed}, trained otherwise "
        f"({differences}); type name=... to put this into another folder."
    )
