"""What is said of runs in the terminal: one line each, and the sum at the end of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lm_experiments.rundir.results import DONE, RunError, read_result, run_status
from lm_experiments.study.plan import PlannedRun
from lm_experiments.training.wandb.offline import offline_summary


def run_line(directory: Path) -> str:
    """Return one line: which run, how it ended, its loss or what stopped it."""
    result = read_result(directory)
    if result is None:
        return f"{directory.name}: no result yet"
    if result.status == DONE:
        return (
            f"{directory.name}: {result.outcome}, validation loss {_loss(result.val_loss)} "
            f"after {result.steps:,} steps in {result.seconds:,.0f} s"
        )
    error = result.error or RunError(result.status, "continue it: same command")
    log = f" (traceback in {directory / 'train.log'})" if result.error else ""
    return f"{directory.name}: {result.status.upper()}: {error.type}: {error.message}{log}"


def end_lines(runs: Sequence[PlannedRun]) -> list[str]:
    """Return how a sweep ended: counts, and each run that failed with its reason."""
    failed = [run for run in runs if run_status(run.directory) != "done"]
    lines = [f"{len(runs) - len(failed)} done, {len(failed)} failed."]
    return lines + [f"  {run_line(run.directory)}" for run in failed]


def offline_lines(folder: Path) -> list[str]:
    """Return how to send on, or look at, what W&B kept on this disk."""
    return offline_summary(sorted(path for path in folder.iterdir() if path.is_dir()))


def _loss(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
