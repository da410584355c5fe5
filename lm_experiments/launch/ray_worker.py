"""What a worker of Ray does for a run: train it in a process of its own, and tell how it ended.

A worker outlives its runs, and imports no torch: its fork server does, once for all of them.
"""

from __future__ import annotations

import hashlib
import io
import os
import signal
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_experiments.launch.endings import memory_kills
from lm_experiments.launch.fork import RUNS_ELSEWHERE, start_server, train_isolated
from lm_experiments.rundir.identity import Identity

LOOK_EVERY = 0.25
STOP_SIGNAL = signal.SIGUSR1
STOPPED = 128 + STOP_SIGNAL
# A process that was lost with its node may still be saving; its successor waits for it.
WAIT_FOR_LOCK = 60.0
NOT_PACKED = (".lock",)


@dataclass(frozen=True)
class Task:
    """One run, as a worker is told of it.

    Attributes:
        directory: the run directory, an absolute path on the machine that sweeps.
        folder: the working directory there.
        devices: how many of the worker's the run uses.
        shared: a file that is seen wherever the run directory is.
        stop_key: where the cluster is told that the sweep stops.
        environment: variables that the run needs.
        packed: what brings the run directory where it is not shared: a reference in a list.
    """

    directory: str
    folder: str
    identity: Identity
    code_paths: list[str]
    devices: int
    shared: str
    stop_key: bytes
    environment: dict[str, str] = field(default_factory=dict)
    packed: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """How a run's process ended.

    Attributes:
        code: its exit code; negative where a signal killed it.
        memory_killed: whether the kernel killed a process for lack of memory meanwhile.
        packed: the run directory, where the machine that sweeps does not see it.
    """

    code: int
    memory_killed: bool
    packed: bytes | None = None


def train(task: Task) -> Ended:
    """Train the run of a task; called in a worker, by Ray."""
    _prepare(task)
    if _asked_to_stop(task.stop_key):
        return Ended(STOPPED, False)
    with _stopped_by(task.stop_key):
        if Path(task.shared).exists():
            return _train(Path(task.directory), task)
        directory = _unpacked(task)
        ended = _train(directory, task)
        return Ended(ended.code, ended.memory_killed, pack(directory))


def pack(directory: Path) -> bytes:
    """Return a run directory as the bytes of a tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(directory.rglob("*")):
            if path.name not in NOT_PACKED:
                archive.add(path, path.relative_to(directory), recursive=False)
    return buffer.getvalue()


def unpack(packed: bytes, directory: Path) -> None:
    """Put a packed run directory where it belongs; its result comes last, as when it is trained."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name == "result.json")
        for member in members:
            archive.extract(member, directory, filter="data")


def _train(directory: Path, task: Task) -> Ended:
    kills = memory_kills()
    code = RUNS_ELSEWHERE
    deadline = time.monotonic() + WAIT_FOR_LOCK
    while code == RUNS_ELSEWHERE and time.monotonic() < deadline:
        try:
            code = train_isolated(directory, task.identity, task.code_paths, task.devices)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Ended(code, memory_kills() > kills)


def _prepare(task: Task) -> None:
    os.environ.update(task.environment)
    if Path(task.folder).is_dir():
        os.chdir(task.folder)
    # Each run's process would import the main file anew, which is Ray's.
    vars(sys.modules["__main__"]).pop("__file__", None)
    start_server()


def _unpacked(task: Task) -> Path:
    """Return a run directory on this machine, what the sweeping one has of it inside."""
    import ray

    place = hashlib.sha256(task.directory.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"lm_experiments-{os.getuid()}-{place}"
    directory = folder / Path(task.directory).parent.name / Path(task.directory).name
    unpack(ray.get(task.packed[0]), directory)
    return directory


def _asked_to_stop(key: bytes) -> bool:
    from ray.experimental.internal_kv import _internal_kv_get

    return bool(_internal_kv_get(key))


@contextmanager
def _stopped_by(key: bytes) -> Iterator[None]:
    """End this process's run, saved, once the sweep leaves a value under a key of the cluster.

    A Ctrl-C does not come here otherwise: Ray blocks SIGINT in all that it starts.
    """
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY):
            if _asked_to_stop(key):
                os.kill(os.getpid(), STOP_SIGNAL)
                return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
