"""``pause.json``: the step after which a run rests, to be continued or left.

Its schedule is that of all its steps: a run that goes on is the one that never rested.
"""

from __future__ import annotations

from pathlib import Path

from lm_experiments.rundir.atomic import read_object, write_json
from lm_experiments.rundir.names import PAUSE, damaged


def pause_of(run_dir: Path) -> int | None:
    """Return the step after which a run rests, None where it goes to its end."""
    path = run_dir / PAUSE
    try:
        step = read_object(path).get("step")
    except FileNotFoundError:
        return None
    if not isinstance(step, int) or step < 1:
        raise damaged(path, f"step is {step!r}")
    return step


def write_pause(run_dir: Path, step: int | None) -> None:
    """Let a run rest after a step, or go to its end."""
    if step is None:
        (run_dir / PAUSE).unlink(missing_ok=True)
    else:
        write_json(run_dir / PAUSE, {"step": step})
