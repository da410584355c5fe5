"""Runs that another sweep has finished already: found by their identity, and copied from there.

A copy is a run directory like any other, so that a sweep's folder holds all that it rests on.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from lm_experiments.errors import InputError
from lm_experiments.report.collect import Sweep, collect
from lm_experiments.report.statistics.compare import plan_contrasts
from lm_experiments.rundir import ledger
from lm_experiments.rundir.atomic import UNFINISHED, write_atomically
from lm_experiments.rundir.claim import RunningElsewhereError, claimed
from lm_experiments.rundir.live import is_held
from lm_experiments.rundir.names import (
    DIAGNOSTICS,
    DOCUMENTS,
    HASH_END,
    LOCK,
    LOG,
    METRICS,
    RESULT,
    SAMPLES,
    TOKENIZER,
)
from lm_experiments.rundir.results import DONE, Result, read_result, write_result
from lm_experiments.source import training_hash
from lm_experiments.study.plan import PlannedRun, make_directory
from lm_experiments.training.checkpoints import checkpoints_of, files_of
from lm_experiments.training.config import load_config


def done_elsewhere(runs: Sequence[PlannedRun], folders: Sequence[str]) -> list[PlannedRun]:
    """Return the runs, those that are done in another sweep with their `source` and its result.

    It must be the same run, by its hash, and the same training code. However it turned out, it is
    taken; only what was not trained to its end is not. An A/A control is trained anew, and what
    has a checkpoint here is continued here. Runs come from as few folders as possible.

    Raises:
        InputError: where a folder is not there.
    """
    open_runs = {_end(run): run for run in runs if _is_open(run)}
    copies: dict[str, dict[Path, Result]] = {}
    for path in _named_like(open_runs.keys(), _existing(folders, runs)) if open_runs else ():
        end = path.name[-HASH_END:]
        if result := _finished(path, open_runs[end]):
            copies.setdefault(end, {})[path] = result
    shares = Counter(path.parent for found in copies.values() for path in found)
    chosen = {
        end: max(found, key=lambda path: shares[path.parent]) for end, found in copies.items()
    }
    return [_from(run, chosen.get(_end(run)), copies) for run in runs]


def take_runs(runs: Sequence[PlannedRun]) -> None:
    """Copy the runs that have a `source` into their own directories, and tell the ledger.

    What cannot be copied after all is said, and is left to be trained.
    """
    by_folder: dict[Path, list[PlannedRun]] = {}
    for run in runs:
        if run.source is not None:
            by_folder.setdefault(run.source.parent, []).append(run)
    for folder, there in by_folder.items():
        ready = [run for run in there if _tried(run, _make)]
        if ready:
            # Told first: no result may lie here without a word of where it came from.
            ledger.append(ready[0].directory.parent, ledger.TAKEN, _origin(folder, ready))
        for run in ready:
            _tried(run, _copy)


def _from(
    run: PlannedRun, source: Path | None, copies: Mapping[str, Mapping[Path, Result]]
) -> PlannedRun:
    """Return a run with the directory it is taken from, and what that says of it."""
    if source is None:
        return run
    return dataclasses.replace(run, source=source, result=copies[_end(run)][source])


def _end(run: PlannedRun) -> str:
    return run.config_hash[:HASH_END]


def _is_open(run: PlannedRun) -> bool:
    """Return whether the run may come from elsewhere."""
    if run.config.control is not None or run.status == DONE or is_held(run.directory / LOCK):
        return False
    return not checkpoints_of(run.directory)


def _existing(folders: Sequence[str], runs: Sequence[PlannedRun]) -> list[Path]:
    """Return the folders to search; that of all sweeps may not be there yet."""
    paths = [Path(folder).expanduser() for folder in folders]
    own = {Path(run.config.runs_dir).expanduser() for run in runs}
    if missing := [path for path in paths if path not in own and not path.is_dir()]:
        raise InputError(
            f"runs_from=[{','.join(folders)}] names {missing[0]}, which is no folder; type folders "
            "with runs or sweeps in them, or runs_from=[] to train all runs."
        )
    return paths


def _named_like(ends: Set[str], folders: Sequence[Path]) -> Iterator[Path]:
    """Yield what is named like these runs, in the folders and in the sweeps inside them."""
    for folder in folders:
        for sweep in (folder, *(folder / name for name in _names(folder))):
            yield from (sweep / name for name in _names(sweep) if name[-HASH_END:] in ends)


def _names(folder: Path) -> list[str]:
    """Return what a folder holds, nothing where it cannot be read or is none."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def _finished(directory: Path, run: PlannedRun) -> Result | None:
    """Return the result of the same run, trained to its end by this code; None for all else."""
    if directory.parent.resolve() == run.directory.parent.resolve():
        return None
    try:
        result = read_result(directory)
    except (InputError, OSError):
        # It is for the commands of its own sweep to complain of.
        return None
    if result is None or result.status != DONE or is_held(directory / LOCK):
        return None
    same = (result.config_hash, result.code_hash) == (run.config_hash, training_hash())
    return result if same else None


def _tried(run: PlannedRun, step: Callable[[PlannedRun], None]) -> bool:
    """Do a step of taking a run; return whether it could be done, and say where not."""
    try:
        step(run)
    except (InputError, OSError, RunningElsewhereError) as error:
        print(f"{run.directory} cannot be taken from {run.source}: {error}")
        return False
    return True


def _make(run: PlannedRun) -> None:
    """Make the run's directory with names of this sweep, and how it was trained from its source."""
    assert run.source is not None
    there = load_config(run.source)
    config = dataclasses.replace(run.config, trainer=there.trainer, compile=there.compile)
    make_directory(dataclasses.replace(run, config=config))


def _copy(run: PlannedRun) -> None:
    """Copy what training left in the run's source, its result last, as that says all is there."""
    assert run.source is not None and run.result is not None
    with claimed(run.directory) as is_open:
        if not is_open:
            return
        for name in (METRICS, DIAGNOSTICS, SAMPLES, LOG, TOKENIZER):
            if (path := run.source / name).exists():
                write_atomically(run.directory / name, path.read_bytes())
        saved = [file for path in checkpoints_of(run.source) for file in files_of(path)]
        for path in [run.source / DOCUMENTS, *saved]:
            if path.exists():
                link(path.resolve(), run.directory / path.relative_to(run.source))
        ended = (run.source / RESULT).stat().st_mtime
        own = run.config
        result = dataclasses.replace(
            run.result,
            arm=own.arm,
            equal=own.trainer.equal,
            match=own.model.match,
            match_tolerance=own.model.match_tolerance,
            # W&B has the run where it was trained.
            wandb="none",
        )
        write_result(run.directory, result)
        os.utime(run.directory / RESULT, (ended, ended))


def link(source: Path, target: Path) -> None:
    """Give a file that is never changed in place a second name, or copy it to another disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        part = target.with_name(f".{target.name}{UNFINISHED}")
        shutil.copyfile(source, part)
        part.replace(target)


def _origin(folder: Path, runs: Sequence[PlannedRun]) -> ledger.Taken:
    """Return what the ledger is told of runs taken from a folder."""
    names = {run.source.name: run.directory.name for run in runs if run.source}
    written = {name: (folder / source / RESULT).stat() for source, name in names.items()}
    ended = {name: ledger.utc(stat.st_mtime) for name, stat in written.items()}
    try:
        sweep = collect(folder)
        return ledger.Taken(str(folder), ended, _declared(sweep, names), _tested(sweep))
    except InputError:
        # A folder that cannot be read as a sweep declares nothing.
        return ledger.Taken(str(folder), ended)


def _declared(sweep: Sweep, names: Mapping[str, str]) -> list[list[str]]:
    """Return the pairs of these runs that belong to a contrast declared before its results."""
    plan = plan_contrasts(sweep, sweep.baseline, "val_loss")
    taken = {
        (run.arm, run.role, run.seed): names[run.directory.name]
        for run in sweep.runs
        if run.directory.name in names
    }
    return [
        [name, taken[reference, role, seed]]
        for arm, reference in plan.confirmatory
        for (own, role, seed), name in taken.items()
        if own == arm and (reference, role, seed) in taken
    ]


def _tested(sweep: Sweep) -> ledger.Declaration | None:
    """Return what a sweep had declared when it last showed p-values, None where it never did."""
    declared = tested = None
    for entry in sweep.ledger:
        if entry.event == ledger.DECLARED:
            declared = entry.declaration
        if entry.event == ledger.LOOK and entry.look.tested:
            tested = declared
        if entry.event == ledger.TAKEN:
            tested = tested or entry.taken.tested
    return tested
