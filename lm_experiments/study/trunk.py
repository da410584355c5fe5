"""One trunk for all rungs of a ladder by budget (Hägele et al. 2024).

A run goes on from its rung below, at the last step at which both have had the same learning rates.
Seed, text and weights are the same up to there, so that it is the run that it would be alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.rundir.claim import claimed
from lm_experiments.rundir.names import DIAGNOSTICS, METRICS, SAMPLES
from lm_experiments.rundir.pause import write_pause
from lm_experiments.rundir.results import DONE, FAILED, run_status
from lm_experiments.rundir.study import Study
from lm_experiments.study.identity import differing_keys
from lm_experiments.study.plan import PlannedRun
from lm_experiments.study.rungs import DIAGNOSED, LOOKS, STEPS
from lm_experiments.study.store import link
from lm_experiments.training.checkpoints import (
    checkpoint_step,
    checkpoints_of,
    files_of,
    newest_checkpoint,
)
from lm_experiments.training.config import RunConfig

# In what a run may differ from that of its rung below: how long it is, and when it is looked at.
FREE = (STEPS, *LOOKS, DIAGNOSED)


def on_trunk(runs: Sequence[PlannedRun], study: Study) -> list[PlannedRun]:
    """Return the runs, those above the smallest rung with the one they go on from.

    Raises:
        InputError: where a run is not the beginning of its rung above.
    """
    ladder = study.ladder
    if ladder is None or not ladder.trunk:
        return list(runs)
    below = {
        upper.arms[arm]: lower.arms[arm]
        for lower, upper in pairwise(ladder.rungs)
        for arm in upper.arms
    }
    by_cell = {(run.config.arm, run.config.seed): run for run in runs}
    cells = {cell: by_cell.get((below.get(cell[0], ""), cell[1])) for cell in by_cell}
    return [_on(run, cells[run.config.arm, run.config.seed]) for run in runs]


def shared_steps(one: RunConfig, other: RunConfig) -> int:
    """Return after how many steps the learning rates of two runs of a schedule part."""
    totals = [config.trainer.max_steps for config in (one, other)]
    for step in range(1, min(totals) + 1):
        factors = {one.schedule.factor(step, total) for total in totals}
        if len(factors) > 1:
            return step - 1
    return min(totals)


def climb(runs: Sequence[PlannedRun], train: Callable[[Sequence[PlannedRun]], None]) -> None:
    """Train runs, rung by rung to where the next one goes on from them, then all to their ends.

    Runs without a trunk are trained at once. What is known is read from the directories, so that a
    command that was stopped goes on.

    Raises:
        SystemExit: where a run neither came to its branch nor failed.
    """
    by_directory = {run.directory: run for run in runs}
    there = {run.directory for run in runs if run.below not in by_directory}
    while above := [run for run in runs if run.below in there]:
        pairs = [(by_directory[run.below], run) for run in above if run.below]
        due = [pair for pair in pairs if _is_due(*pair)]
        if short := [pair for pair in due if _step_of(pair[0]) < pair[1].begins]:
            _rest(short, train)
        for below, run in due:
            newest = newest_checkpoint(below.directory)
            if newest is not None and checkpoint_step(newest) == run.begins:
                _hand_on(newest, below, run)
        there = {run.directory for run in above}
    train(runs)


def _on(run: PlannedRun, below: PlannedRun | None) -> PlannedRun:
    if below is None:
        return run
    asked = f"study.ladder.trunk=true, and {run.config.arm!r} "
    if unlike := [key for key in differing_keys(below.values, run.values) if key not in FREE]:
        raise InputError(
            f"{asked}differs from {below.config.arm!r} in {', '.join(unlike)}; set it for all "
            "rungs alike, or type study.ladder.trunk=false."
        )
    if run.config.trainer.average != "none":
        raise InputError(
            f"{asked}averages its weights over a part of its own run; type trainer.average=none "
            "or study.ladder.trunk=false."
        )
    # A run that ends there would keep no more than its weights.
    steps = min(shared_steps(below.config, run.config), below.config.trainer.max_steps - 1)
    if 2 * steps < below.config.trainer.max_steps:
        raise InputError(
            f"{asked}has the learning rate of {below.config.arm!r} for {steps} steps alone, as "
            f"schedule={run.config.schedule.name} follows the length of a run; type schedule=wsd."
        )
    return replace(run, below=below.directory, begins=steps)


def _is_due(below: PlannedRun, above: PlannedRun) -> bool:
    """Return whether a run can still be handed what the one below it has trained."""
    new = run_status(above.directory) not in (DONE, FAILED) and not checkpoints_of(above.directory)
    return new and run_status(below.directory) not in (DONE, FAILED)


def _step_of(run: PlannedRun) -> int:
    newest = newest_checkpoint(run.directory)
    return 0 if newest is None else checkpoint_step(newest)


def _rest(
    pairs: Sequence[tuple[PlannedRun, PlannedRun]], train: Callable[[Sequence[PlannedRun]], None]
) -> None:
    """Train each first run of a pair to where the second one goes on from it."""
    for below, above in pairs:
        write_pause(below.directory, above.begins)
    train([below for below, _ in pairs])
    for below, above in pairs:
        if _step_of(below) < above.begins and run_status(below.directory) not in (DONE, FAILED):
            raise SystemExit(
                f"{below.directory} has not come to step {above.begins:,}, where the rung above "
                "goes on from it; the same command continues."
            )
        write_pause(below.directory, None)


def _hand_on(checkpoint: Path, below: PlannedRun, above: PlannedRun) -> None:
    """Leave in a run's directory what it would hold had it been trained so far itself."""
    with claimed(above.directory) as is_open:
        if not is_open:
            return
        for name in (METRICS, DIAGNOSTICS, SAMPLES):
            if (path := below.directory / name).exists():
                write_atomically(above.directory / name, path.read_bytes())
        for file in files_of(checkpoint):
            link(file.resolve(), above.directory / file.relative_to(below.directory))
