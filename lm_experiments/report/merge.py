"""Several sweeps as one: what is configured alike is one arm, and each run counts once."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lm_experiments.errors import InputError
from lm_experiments.report.collect import Run, Sweep
from lm_experiments.rundir.results import DONE, WAITING
from lm_experiments.rundir.sweeps import SweepRecord


def merge(sweeps: Sequence[Sweep], out: Path) -> Sweep:
    """Return the runs of several sweeps as one sweep, which declares nothing by itself.

    Arms are one where their configurations are, whatever they are called; where another arm has
    the name already, the folder's follows it. The baseline is the first sweep's. A/A controls,
    which check the sweep they belong to, are left out.

    Args:
        sweeps: two or more, each with its folder.
        out: the folder that run directories are named relative to.

    Raises:
        InputError: for a folder that is named twice, and for a sweep that tunes each arm.
    """
    _check(sweeps)
    labels = _labels(sweeps)
    runs: dict[tuple[str, str], Run] = {}
    for sweep in sweeps:
        for run in sweep.runs:
            if label := labels.get((sweep.directory, run.arm)):
                named = _named(run, label, out)
                key = run.row.config_hash or run.config_hash or named.row.directory, run.role
                if key not in runs or (runs[key].status != DONE and run.status == DONE):
                    runs[key] = named
    first = sweeps[0]
    baseline = labels.get((first.directory, first.baseline))
    axes = first.record.axes
    return Sweep(
        directory=out,
        record=SweepRecord(
            name=" + ".join(dict.fromkeys(sweep.record.name for sweep in sweeps)),
            axes=axes if all(sweep.record.axes == axes for sweep in sweeps) else [],
        ),
        runs=tuple(sorted(runs.values(), key=lambda run: run.arm != baseline)),
        extra=tuple(path for sweep in sweeps for path in sweep.extra),
        parts=tuple(sweeps),
    )


def _check(sweeps: Sequence[Sweep]) -> None:
    folders = [sweep.directory.resolve() for sweep in sweeps]
    for sweep, folder in zip(sweeps, folders, strict=True):
        if folders.count(folder) > 1:
            raise InputError(f"{sweep.directory} is named twice; name each folder once.")
        if sweep.study and sweep.study.tune:
            raise InputError(
                f"{sweep.directory} tunes {sweep.study.tune.key} for each arm, and a merged table "
                "holds runs at settings that they share; leave it out."
            )


def _labels(sweeps: Sequence[Sweep]) -> dict[tuple[Path, str], str]:
    """Return what the arms of each folder are called, controls left out."""
    labels: dict[tuple[Path, str], str] = {}
    called: dict[str, str] = {}
    for sweep in sweeps:
        controls = sweep.study.controls if sweep.study else []
        # A run that has not begun does not know its configuration.
        for run in sorted(sweep.runs, key=lambda run: run.status == WAITING):
            key = sweep.directory, run.arm
            if key not in labels and run.arm not in controls:
                other = f"{run.arm} ({sweep.directory})"
                own = other if run.arm in called.values() else run.arm
                labels[key] = called.setdefault(_configured(run), own)
    return labels


def _configured(run: Run) -> str:
    """Return what the runs of an arm share: all that determines the result but their seeds.

    Of a run whose values are not known it is its label and what was typed.
    """
    values = {
        key: "${seed}" if key in run.row.by_seed else value
        for key, value in run.values.items()
        if key != "seed"
    }
    return json.dumps(values or [run.arm, *sorted(run.row.overrides)], sort_keys=True)


def _named(run: Run, arm: str, out: Path) -> Run:
    """Return a run under its arm's name in the merged table, its directory seen from ``out``."""
    directory = os.path.relpath(run.directory, out)
    return replace(run, row=replace(run.row, arm=arm, directory=directory))
