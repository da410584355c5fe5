"""The work of a Ray worker: to train a run in processes of its own, and report how it ended.

A worker outlives its runs and does not import torch; its fork server does, once for all runs.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from lm_experiments.launch.endings import ELSEWHERE, Ending
from lm_experiments.launch.local import train
from lm_experiments.launch.ray_files import copy_from, this_node
from lm_experiments.launch.task import Task
from lm_experiments.rundir.results import FAILED, INTERRUPTED

# Each look is a question to the head of the cluster, by every worker there is.
LOOK_EVERY = 2.0
STOP_SIGNAL = signal.SIGUSR1
# A process that was lost with its node may still be saving; its successor waits for it.
WAIT_FOR_LOCK = 60.0


@dataclass(frozen=True)
class RemoteTask:
    """A run as it is sent to a worker.

    Attributes:
        task: its run directory is an absolute path on the machine that started the sweep.
        working_dir: the working directory there.
        shared: a file that exists wherever the run directory is mounted.
        stop_key: the key under which the cluster is told that the sweep stops.
        environment: variables that the run needs.
        home: the node of the machine that started the sweep.
        ends_sweep: whether the sweep ends if it fails.
    """

    task: Task
    working_dir: str
    shared: str
    stop_key: bytes
    home: str
    environment: dict[str, str] = field(default_factory=dict)
    ends_sweep: bool = False


def train_remotely(remote: RemoteTask) -> tuple[Ending, tuple[str, Path] | None]:
    """Train a run; called in a worker, by Ray.

    Returns:
        How it ended, and where its directory is, a node and a path there, if the sweep's machine
        cannot see it.
    """
    _prepare(remote)
    if _asked_to_stop(remote.stop_key):
        return Ending(INTERRUPTED, STOP_SIGNAL), None
    task, is_shared = remote.task, Path(remote.shared).exists()
    with _stopped_by(remote.stop_key):
        if not is_shared:
            task = replace(task, directory=_copied(remote))
        ending = _train(task)
    if remote.ends_sweep and ending.status == FAILED:
        # Before the next run takes this one's place, and not when the sweep has heard of it.
        ask_to_stop(remote.stop_key)
    return ending, None if is_shared else (this_node(), task.directory)


def _train(task: Task) -> Ending:
    deadline = time.monotonic() + WAIT_FOR_LOCK
    while (ending := train(task)).status == ELSEWHERE and time.monotonic() < deadline:
        pass
    return ending


def _prepare(remote: RemoteTask) -> None:
    os.environ.update(remote.environment)
    if Path(remote.working_dir).is_dir():
        os.chdir(remote.working_dir)
    # Each run's process would import the main file again, which is Ray's.
    vars(sys.modules["__main__"]).pop("__file__", None)


def _copied(remote: RemoteTask) -> Path:
    """Return the run directory on this machine, copied from the sweep's."""
    there = remote.task.directory
    place = hashlib.sha256(str(there).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"lm_experiments-{os.getuid()}-{place}"
    directory = folder / there.parent.name / there.name
    copy_from(remote.home, there, directory)
    return directory


def ask_to_stop(key: bytes) -> None:
    """Tell all workers that the sweep stops."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key, b"1")


def _asked_to_stop(key: bytes) -> bool:
    from ray.experimental.internal_kv import _internal_kv_get

    return bool(_internal_kv_get(key))


@contextmanager
def _stopped_by(key: bytes) -> Iterator[None]:
    """Stop this process's run, with a checkpoint, once the sweep writes a value under ``key``.

    Ctrl-C does not reach a worker, since Ray blocks SIGINT in its processes.
    """
    over = threading.Event()

    def _look() -> None:
        while not over.wait(LOOK_EVERY):
            if _asked_to_stop(key):
                os.kill(os.getpid(), STOP_SIGNAL)
                return

    watcher = threading.Thread(target=_look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
