"""The state of a run that may still be training, read without disturbing the process."""

from __future__ import annotations

import fcntl
import re
from pathlib import Path

from lm_experiments.rundir.names import CONFIG, LOCK, METRICS
from lm_experiments.rundir.results import DONE, INTERRUPTED, RUNNING, WAITING, Result

_MAX_STEPS = re.compile(r"^trainer:\n(?:[ #].*\n)*?  max_steps: (\d+)$", re.MULTILINE)


def run_state(run_dir: Path, result: Result | None) -> str:
    """Return done, running, failed, interrupted or waiting.

    A run is running while a process holds its lock, whatever an earlier process recorded. A run
    that began, has no result and is not held was killed: it is interrupted.
    """
    if result and result.status == DONE:
        return DONE
    lock = run_dir / LOCK
    if is_held(lock):
        return RUNNING
    if result:
        return result.status
    return INTERRUPTED if lock.exists() or (run_dir / METRICS).exists() else WAITING


def is_held(lock: Path) -> bool:
    """Return whether a process holds the run's lock; the file is not changed.

    Asks for a shared lock, so that two readers do not take each other for a training process.
    """
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def max_steps_of(directory: Path) -> int | None:
    """Return the run's step budget; a YAML parser is too slow for a thousand configurations."""
    try:
        found = _MAX_STEPS.search((directory / CONFIG).read_text(encoding="utf-8"))
    except OSError:
        return None
    return int(found[1]) if found else None
