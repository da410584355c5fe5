"""What W&B is told of a run that has ended: its result, what it came to, and an alert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_experiments.rundir.names import DOCUMENTS, IDENTITY
from lm_experiments.rundir.results import BROKEN, Result, result_values
from lm_experiments.training.peaks import utilization
from lm_experiments.training.wandb.client import keep
from lm_experiments.training.wandb.description import tag

if TYPE_CHECKING:
    from wandb import Run

# The exit code of a run whose numbers went wrong, where a crash has 1: W&B shows it as failed.
BLEW_UP = 3
# Keys of its summary: the name of its directory, and all of ``result.json``.
DIRECTORY, RESULT = "directory", "result"
# What a table needs beside the result and the rows.
KEPT = (IDENTITY, DOCUMENTS)


def tell_result(run: Run, run_dir: Path, result: Result, exit_code: int) -> int:
    """Give a run its summary, its last tag and the files of a table; return its exit code."""
    summary: dict[str, Any] = {RESULT: result_values(result)}
    if (share := utilization(result)) is not None:
        summary["mfu"] = share
    run.summary.update(summary)
    keep(run, [run_dir / name for name in KEPT if (run_dir / name).is_file()])
    if result.outcome is not None:
        run.tags = (*(run.tags or ()), tag("outcome", result.outcome))
    if result.outcome not in BROKEN:
        return exit_code
    where = "" if result.outcome_step is None else f" at step {result.outcome_step}"
    run.alert(f"{run.name}: {result.outcome}", f"{run_dir.name} is {result.outcome}{where}.")
    return BLEW_UP
