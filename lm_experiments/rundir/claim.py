"""Who trains a run: one process at a time holds its directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from lm_experiments.rundir.atomic import remove_unfinished
from lm_experiments.rundir.names import LOCK, RESULT
from lm_experiments.rundir.results import is_done


class RunningElsewhereError(RuntimeError):
    """Another process is training in this run directory."""


@contextmanager
def claimed(run_dir: Path) -> Iterator[bool]:
    """Hold the lock of a run directory; yield whether the run still has to be trained.

    The operating system releases the lock also where the process is killed. Raises
    `RunningElsewhereError` where another process holds it.
    """
    lock = FileLock(run_dir / LOCK)
    try:
        # A process that only checks whether the run is alive holds the lock for a moment.
        lock.acquire(timeout=1)
    except Timeout:
        raise RunningElsewhereError(f"{run_dir} is being trained by another process.") from None
    with lock:
        # Its time tells since when the run is being trained.
        (run_dir / LOCK).touch()
        # Another process may have finished the run since this one decided to train it.
        is_open = not is_done(run_dir)
        if is_open:
            # Delete the stale result, or a crash would look like the previous outcome.
            (run_dir / RESULT).unlink(missing_ok=True)
            remove_unfinished(run_dir)
        yield is_open
