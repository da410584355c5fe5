"""Tuning by halving: at two rungs, the worse half of each arm's values ends (Jamieson 2016).

All arms get the same budget by the same rule, which is declared before. A trial rests at a rung and
goes on as the run that it would have been, or ends there; what it measured stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lm_experiments.report.statistics.tuning import better_half
from lm_experiments.rundir import ledger
from lm_experiments.rundir.metrics import loss_at
from lm_experiments.rundir.names import METRICS
from lm_experiments.rundir.results import (
    DONE,
    ENDED,
    FAILED,
    INTERRUPTED,
    Result,
    read_result,
    run_status,
    write_result,
)
from lm_experiments.rundir.study import TUNE, Tuning
from lm_experiments.study.plan import PlannedRun
from lm_experiments.training.checkpoints import keep_weights

RUNGS = (0, 1)


def halve(
    tune: Tuning, trials: Sequence[PlannedRun], train: Callable[[Sequence[PlannedRun]], None]
) -> list[PlannedRun]:
    """Train trials rung by rung; return those that were trained to their end.

    What is known of a rung is read from the trials, so that a command that was stopped, or whose
    grid has grown, decides again and trains what is missing.

    Args:
        train: trains runs, each up to the step after which it rests.

    Raises:
        SystemExit: where a trial neither came to its rung nor failed.
    """
    going = list(trials)
    for number in RUNGS:
        there = [
            replace(run, until=tune.rungs(run.config.trainer.max_steps)[number]) for run in going
        ]
        if due := [run for run in there if not _reached(run)]:
            train(due)
            _check_reached(due)
        going = _kept(tune, there)
        kept = {run.directory for run in going}
        _end([run for run in there if run.directory not in kept])
    going = [replace(run, until=None) for run in going]
    train(going)
    return going


def measured_at_rungs(tune: Tuning, run: PlannedRun) -> PlannedRun:
    """Return a trial whose validation curve has a point at each rung."""
    first, _ = tune.rungs(run.config.trainer.max_steps)
    trainer = replace(run.config.trainer, val_every=first)
    return replace(run, config=replace(run.config, trainer=trainer))


def share_of(run: PlannedRun, tune: Tuning | None) -> float:
    """Return the part of a run that is expected to be trained."""
    trial = tune is not None and run.spec.role == TUNE
    return tune.budget(run.config.trainer.max_steps) if tune and trial else 1.0


def leave_weights(trials: Iterable[PlannedRun]) -> None:
    """Leave the weights alone of trials that ended, as of runs that are done."""
    for run in trials:
        if run.config.trainer.keep == "weights" and run_status(run.directory) == ENDED:
            keep_weights(run.directory)


def _reached(run: PlannedRun) -> bool:
    """Return whether a trial has been as far as it is to be trained now."""
    assert run.until is not None
    done = run_status(run.directory) == DONE
    return done or loss_at(run.directory / METRICS, run.until) is not None


def _check_reached(trials: Sequence[PlannedRun]) -> None:
    """Stop where a trial was cut off, or is trained elsewhere: it cannot be judged yet."""
    missing = [run for run in trials if not _reached(run) and run_status(run.directory) != FAILED]
    if missing:
        raise SystemExit(
            f"{missing[0].directory} has not come to step {missing[0].until:,}, where its arm's "
            "values are compared; the same command continues."
        )


def _kept(tune: Tuning, trials: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return the trials of the values that go on; ``until`` is the rung at which all are."""
    arms: dict[str, dict[float, list[float | None]]] = {}
    unknown = set()
    for run in trials:
        assert run.until is not None
        loss, result = loss_at(run.directory / METRICS, run.until), read_result(run.directory)
        if loss is None and result and result.usable:
            # It was trained without the rungs, so its arm cannot be compared there.
            unknown.add(run.config.arm)
        of_arm = arms.setdefault(run.config.arm, {})
        of_arm.setdefault(float(run.spec.setting[tune.key]), []).append(loss)
    best = {
        arm: list(found) if arm in unknown else better_half(found) for arm, found in arms.items()
    }
    return [run for run in trials if float(run.spec.setting[tune.key]) in best[run.config.arm]]


def _end(trials: Sequence[PlannedRun]) -> None:
    """Mark trials as ended, and tell the ledger of those that were not."""
    ended = {}
    for run in trials:
        result = read_result(run.directory)
        result = result or Result(INTERRUPTED, run.config.arm, run.config.seed, steps=run.until)
        if result.status not in (DONE, FAILED, ENDED):
            ended[run.directory.name] = str(run.until)
            write_result(run.directory, replace(result, status=ENDED))
    if ended:
        ledger.append(trials[0].directory.parent, ledger.HALVED, ended)
        print(f"{len(ended)} trials in the worse half of their arm's values end.")
