"""Trains a run: one process for each of its devices, started, watched, and accounted for.

The processes get what torchrun would give them, so that `launch.torchrun` can take their place.
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe, connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.launch.endings import (
    ELSEWHERE,
    Attempts,
    Ending,
    ProcessExit,
    ending_of,
    failed,
    finish,
    out_of_memory_kills,
)
from lm_experiments.launch.fork import ForwardedSignals, set_up_child, start_server
from lm_experiments.launch.task import Policy, Task
from lm_experiments.rundir.claim import RunningElsewhereError, claimed
from lm_experiments.rundir.names import log_name
from lm_experiments.rundir.results import DONE, RunError
from lm_experiments.training.signals import SIGNALS, StopSignals

# How long the other processes may take to notice that one has failed, and to close their files.
GRACE_SECONDS = 20.0
# The same after a signal, from the first process that has ended: W&B may be slow to finish.
STOP_SECONDS = 90.0
# How long they may take after a signal before the first step: they may wait for one that is gone.
START_SECONDS = 5.0
LOOK_EVERY = 0.5
STOPPED = tuple(128 + number for number in SIGNALS)
LOOPBACK = "127.0.0.1"


def train_one_after_another(tasks: Sequence[Task], policy: Policy) -> None:
    """Train runs, each in processes of its own; print how each ended, and exit as `finish` does."""
    for task in tasks:
        finish(task.directory, train_with_retries(task, policy.retries), policy)


def train_with_retries(task: Task, retries: int) -> Ending:
    """Train a run, and try again if it fails; return how the last attempt ended."""
    attempts = Attempts(retries)
    while attempts.again(task.directory, ending := train(task)):
        pass
    return ending


def train(task: Task) -> Ending:
    """Train a run directory in a process for each device, unless another process trains it.

    A SIGINT, SIGTERM or SIGUSR1 that reaches this process meanwhile is passed on to them. A
    process that fails ends the run: the others have `GRACE_SECONDS` to notice.
    """
    start_server()
    return _guarded(task.directory, partial(_train_claimed, task))


def train_in_this_process(task: Task) -> Ending:
    """Train a run of one device without a process of its own, as a debugger needs it."""
    return _guarded(task.directory, partial(_train_here, task.directory))


def _guarded(directory: Path, training: partial[Ending]) -> Ending:
    try:
        with claimed(directory) as is_open:
            return training() if is_open else Ending(DONE)
    except RunningElsewhereError:
        return Ending(ELSEWHERE)
    except (OSError, InputError) as error:
        return failed(directory, RunError(type(error).__name__, str(error), None))


def _train_here(directory: Path) -> Ending:
    from lm_experiments.training.fit import train_rank
    from lm_experiments.training.result import run_error

    try:
        train_rank(directory)
    except (SystemExit, Exception) as error:
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
        return ending_of(directory, ProcessExit(code, error=run_error(error)))
    return Ending(DONE)


def _train_claimed(task: Task) -> Ending:
    kills = out_of_memory_kills()
    store = open_store() if task.devices > 1 else None
    ranks, context = [], multiprocessing.get_context("forkserver")
    for number in range(task.devices):
        ours, theirs = Pipe(duplex=False)
        environment = rank_variables(number, task.devices, store) if store else dict(os.environ)
        process = context.Process(target=_train_rank, args=(task, environment, theirs))
        ranks.append(Rank(number, task.devices, process, ours))
    forwarded = ForwardedSignals(lambda: [rank.pid for rank in ranks if rank.pid])
    with forwarded:
        for rank in ranks:
            rank.process.start()
        if forwarded.number is not None:
            # The signal came before they could receive it.
            for rank in ranks:
                rank.process.kill()
        _wait(ranks, forwarded)
    killed = out_of_memory_kills() > kills
    exits = [dataclasses.replace(rank.exit, out_of_memory=killed) for rank in ranks if rank.exit]
    first = exits[_first_to_fail(ranks)]
    return ending_of(task.directory, first, exits, forwarded.number)


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


def _wait(ranks: Sequence[Rank], signals: StopSignals) -> None:
    """Wait for all processes; once one has failed, only as long as the others may take."""
    deadline = math.inf
    while alive := [rank for rank in ranks if rank.exit is None]:
        ended = connection.wait([rank.process.sentinel for rank in alive], LOOK_EVERY)
        for rank in alive:
            if rank.process.sentinel in ended and not rank.notice_end().is_clean:
                stopped = signals.number is not None or bool(rank.exit and rank.exit.stop_signal)
                grace = STOP_SECONDS if stopped else GRACE_SECONDS
                deadline = min(deadline, time.monotonic() + grace)
        if signals.number is not None and not any(rank.has_begun() for rank in ranks):
            deadline = min(deadline, signals.came + START_SECONDS)
        if time.monotonic() > deadline:
            for rank in alive:
                rank.given_up = rank.exit is None
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
        train_rank(task.directory, world, partial(pipe.send, Report()))
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
    """Return the environment of one process: the caller's, and the variables of torchrun."""
    return {
        **os.environ,
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
