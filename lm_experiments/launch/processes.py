"""A run in training: one process for each of its devices, started, watched, and accounted for.

The processes get what torchrun would give them, so that `launch.torchrun` can take their place.
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from lm_experiments.launch.endings import (
    Ending,
    MemoryKills,
    ProcessExit,
    ending_of,
    out_of_memory_kills,
)
from lm_experiments.launch.fork import set_up_child
from lm_experiments.launch.task import Task
from lm_experiments.rundir.names import log_name
from lm_experiments.rundir.results import RunError
from lm_experiments.training.signals import SIGNALS, StopSignals

# How long the other processes may take to notice that one has failed, and to close their files.
GRACE_SECONDS = 20.0
# The same after a signal, from the first process that has ended: W&B may be slow to finish.
STOP_SECONDS = 90.0
# How long they may take after a signal before the first step: they may wait for one that is gone.
START_SECONDS = 5.0
STOPPED = tuple(128 + number for number in SIGNALS)
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Report:
    """What a process tells the one that started it: that its first step begins, or how it ended."""

    finished: bool = False
    error: RunError | None = None
    ended: float | None = None


@dataclass
class Rank:
    """One process of a run; ``exit`` is None until it is known to have ended."""

    number: int
    size: int
    process: ForkServerProcess
    pipe: Connection
    report: Report | None = None
    exit: ProcessExit | None = None
    given_up: bool = False

    @property
    def pid(self) -> int | None:
        """Its id, None before it has been started and once it is known to have ended."""
        return self.process.pid if self.exit is None else None

    def has_begun(self) -> bool:
        """Return whether its first step has begun, by what it has told so far."""
        with suppress(EOFError):
            while self.pipe.poll():
                self.report = self.pipe.recv()
        return self.report is not None

    def notice_end(self) -> ProcessExit:
        """Read what the process reported before it ended."""
        self.process.join()
        self.has_begun()
        told = self.report or Report()
        ended = time.monotonic() if told.ended is None else told.ended
        code = self.process.exitcode or 0
        self.exit = ProcessExit(code, told.finished, told.error, self.number, self.size, ended)
        return self.exit


class Training:
    """A run in training, by a process for each of its devices; its directory is claimed.

    Args:
        variables: what is set in the environment of its processes.
        signals: those that this process gets, and passes on to them.
    """

    def __init__(self, task: Task, variables: Mapping[str, str], signals: StopSignals) -> None:
        self.task, self.signals = task, signals
        self.kills = out_of_memory_kills()
        self.deadline = math.inf
        self._store = open_store() if task.devices > 1 else None
        self.ranks = [
            self._rank(number, {**os.environ, **variables}) for number in range(task.devices)
        ]

    def _rank(self, number: int, environment: Mapping[str, str]) -> Rank:
        ours, theirs = Pipe(duplex=False)
        if self._store is not None:
            ranks = rank_variables(number, self.task.devices, self._store)
            environment = {**environment, **ranks}
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=_train_rank, args=(self.task, environment, theirs))
        return Rank(number, self.task.devices, process, ours)

    @property
    def pids(self) -> list[int]:
        """The processes that are not known to have ended."""
        return [rank.pid for rank in self.ranks if rank.pid]

    @property
    def sentinels(self) -> list[int]:
        """What tells that one of these processes has ended."""
        return [rank.process.sentinel for rank in self.ranks if rank.exit is None]

    def start(self) -> None:
        """Start its processes, and end them where a signal came before they could receive it."""
        try:
            for rank in self.ranks:
                rank.process.start()
        except BaseException:
            self._kill()
            raise
        if self.signals.number is not None:
            self._kill()

    def is_over(self, ended: Collection[object]) -> bool:
        """Take note of processes that have ended, by their sentinels; return whether all have.

        Once one has failed, the others have only as long as they may take.
        """
        for rank in [rank for rank in self.ranks if rank.exit is None]:
            if rank.process.sentinel in ended and not rank.notice_end().is_clean:
                stopped = self.signals.number is not None or bool(
                    rank.exit and rank.exit.stop_signal
                )
                grace = STOP_SECONDS if stopped else GRACE_SECONDS
                self.deadline = min(self.deadline, time.monotonic() + grace)
        if self.signals.number is not None and not any(rank.has_begun() for rank in self.ranks):
            self.deadline = min(self.deadline, self.signals.came + START_SECONDS)
        if time.monotonic() > self.deadline:
            self._kill()
        return not self.sentinels

    def ending(self, kills: MemoryKills) -> Ending:
        """Decide how the run ended whose processes have all ended, and record a failure."""
        exits = [rank.exit for rank in self.ranks if rank.exit]
        killed = [e.code == -signal.SIGKILL for e in exits if not self.ranks[e.rank].given_up]
        if any(killed) and kills.explain_one(self.kills):
            exits = [dataclasses.replace(exit, out_of_memory=True) for exit in exits]
        first = exits[_first_to_fail(self.ranks)]
        return ending_of(self.task.directory, first, exits, self.signals.number)

    def _kill(self) -> None:
        for rank in self.ranks:
            if rank.pid:
                rank.given_up = True
                rank.process.kill()


def _first_to_fail(ranks: Sequence[Rank]) -> int:
    """Return the process whose end ended the run; the others fail because it is missing.

    A killed process reports nothing, and its end may be noticed after theirs.
    """
    exits = [rank.exit for rank in ranks if rank.exit and not rank.given_up]
    exits = exits or [rank.exit for rank in ranks if rank.exit]
    bad = [exit for exit in exits if not exit.is_clean]
    silent = [exit for exit in bad if not exit.finished and exit.error is None]
    return min(silent or bad or exits, key=lambda exit: exit.ended).rank


def _train_rank(task: Task, environment: Mapping[str, str], pipe: Connection) -> None:
    from lm_experiments.training.fit import train_rank
    from lm_experiments.training.result import run_error
    from lm_experiments.training.world import SINGLE_PROCESS, world_of_environment

    world = SINGLE_PROCESS
    try:
        set_up_child(environment, task.code_paths)
        if task.devices > 1:
            world = world_of_environment()
        train_rank(task.directory, world, partial(pipe.send, Report()), task.is_beside)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in STOPPED:
            raise
        failure = run_error(error, log_name(world.rank))
        pipe.send(Report(error=failure, ended=time.monotonic()))
        sys.exit(1)
    pipe.send(Report(finished=True, ended=time.monotonic()))


def open_store() -> Any:
    """Open the store through which the processes find each other, at a port the system chose."""
    # Imported here, since a worker of Ray starts runs without importing torch.
    import torch.distributed as dist

    listening = socket.create_server((LOOPBACK, 0))
    port = listening.getsockname()[1]
    return dist.TCPStore(  # type: ignore[attr-defined]
        LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )


def rank_variables(rank: int, devices: int, store: Any) -> dict[str, str]:
    """Return the variables that torchrun gives a process."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(devices),
        "LOCAL_WORLD_SIZE": str(devices),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_RUN_ID": "lm_experiments",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }
