"""A run on several devices: a process for each, as torchrun starts them, watched until all end.

The processes come from the same warm server as those of other runs. What they are told is what
torchrun would tell them, so that `study.worker` does the same under torchrun itself.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lm_experiments.launch.endings import cause_of, memory_kills, record_failure
from lm_experiments.launch.fork import RUNS_ELSEWHERE, Forwarding, begin
from lm_experiments.rundir.identity import Identity
from lm_experiments.rundir.names import RESULT, log_name
from lm_experiments.rundir.results import RunError, is_done
from lm_experiments.training.result import run_error
from lm_experiments.training.signals import SIGNALS

# How long the others may take to notice that one has ended badly, and to close what they hold.
GRACE_SECONDS = 20.0
# The same after a signal, from the first process that has ended: W&B may be slow to finish.
STOP_SECONDS = 90.0
STOPPED = tuple(128 + number for number in SIGNALS)
LOOPBACK = "127.0.0.1"


@dataclass
class Rank:
    """One process: what it has said at its end, and when."""

    number: int
    process: ForkServerProcess
    line: Connection
    farewell: RunError | str | None = None
    ended: float | None = None
    gave_up: bool = False

    def notice_end(self) -> None:
        """Take down how the process ended."""
        self.process.join()
        self.ended = time.monotonic()
        with suppress(EOFError):
            if self.line.poll():
                self.farewell, self.ended = self.line.recv()

    def give_up(self) -> None:
        """End a process that waits for others which are gone."""
        self.gave_up = True
        self.process.kill()

    @property
    def is_well(self) -> bool:
        """Whether it has trained to the end."""
        return self.process.exitcode == 0 and self.farewell == "done"

    @property
    def death(self) -> RunError:
        """What ended it."""
        if isinstance(self.farewell, RunError):
            return self.farewell
        cause = cause_of(self.process.exitcode or 0)
        return RunError("ProcessDied", f"The process of rank {self.number} {cause}.", None)


def train_together(
    run_dir: Path, identity: Identity, code_paths: Sequence[str], devices: int
) -> int:
    """Train a run directory on several devices of this machine; return the exit code.

    A process that ends badly ends the run: the others have `GRACE_SECONDS` to notice, and the
    result names the one that was first. Signals are passed on to all.

    Raises:
        SystemExit: 128 plus its number where a signal came that asks for an end.
    """
    from lm_experiments.training.fit import RunningElsewhereError, claimed

    try:
        with claimed(run_dir) as is_ours:
            if not is_ours:
                return 0
            return _train(run_dir, identity, code_paths, devices)
    except RunningElsewhereError:
        return RUNS_ELSEWHERE


def _train(run_dir: Path, identity: Identity, code_paths: Sequence[str], devices: int) -> int:
    kills = memory_kills()
    store = open_store()
    ranks = [
        _rank(number, (run_dir, identity, list(code_paths)), rank_variables(number, devices, store))
        for number in range(devices)
    ]
    forwarding = Forwarding([rank.process for rank in ranks])
    with forwarding:
        for rank in ranks:
            rank.process.start()
        forwarding.started()
        _wait(ranks)
    if forwarding.number is not None:
        raise SystemExit(128 + forwarding.number)
    code = _exit_code(ranks)
    if code == 1 and not is_done(run_dir):
        _record(run_dir, identity, ranks, out_of_memory=memory_kills() > kills)
    return 0 if is_done(run_dir) else code


def _wait(ranks: Sequence[Rank]) -> None:
    """Wait for all; once one has not ended well, no longer than the others may take."""
    deadline: float | None = None
    while alive := [rank for rank in ranks if rank.ended is None]:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = connection.wait([rank.process.sentinel for rank in alive], left)
        if not ready:
            for rank in alive:
                rank.give_up()
        for rank in alive:
            if rank.process.sentinel in ready:
                rank.notice_end()
                if deadline is None and not rank.is_well:
                    stopped = rank.process.exitcode in STOPPED
                    deadline = time.monotonic() + (STOP_SECONDS if stopped else GRACE_SECONDS)


def _exit_code(ranks: Sequence[Rank]) -> int:
    """Return 0 where all ended well, 128 plus a signal that stopped one by itself, else 1."""
    stopped = [rank.process.exitcode for rank in ranks if rank.process.exitcode in STOPPED]
    if stopped and stopped[0] is not None:
        return stopped[0]
    return 0 if all(rank.is_well for rank in ranks) else 1


def _record(run_dir: Path, identity: Identity, ranks: Sequence[Rank], out_of_memory: bool) -> None:
    """Name the process that ended the run; the errors of the others are that they miss it."""
    bad = [rank for rank in ranks if not rank.is_well and not rank.gave_up]
    # What was killed said nothing, and what came to miss it may have been noticed before.
    sudden = [rank for rank in bad if rank.farewell is None]
    first = min(sudden or bad, key=lambda rank: rank.ended or 0.0)
    if first.number == 0 and (run_dir / RESULT).exists():
        # It has written so itself.
        return
    death = first.death
    if out_of_memory and first.farewell is None:
        cause = cause_of(first.process.exitcode or 0, out_of_memory=True)
        death = RunError("ProcessDied", f"The process of rank {first.number} {cause}.", None)
    record_failure(run_dir, identity, death)


def open_store() -> Any:
    """Open the store through which the processes find each other, at a port the system chose."""
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
    """Return the environment of one process: the caller's, and its place as torchrun tells it."""
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


def _rank(number: int, run: tuple[Path, Identity, list[str]], variables: dict[str, str]) -> Rank:
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_train_rank, args=(*run, variables, theirs))
    return Rank(number, process, ours)


def _train_rank(
    run_dir: Path,
    identity: Identity,
    code_paths: Sequence[str],
    environment: Mapping[str, str],
    line: Connection,
) -> None:
    begin(environment, code_paths)
    from lm_experiments.training.fit import train_claimed
    from lm_experiments.training.world import world_of_environment

    world = world_of_environment()
    try:
        train_claimed(run_dir, identity, world)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in STOPPED:
            raise
        line.send((run_error(error, log_name(world.rank)), time.monotonic()))
        sys.exit(1)
    line.send(("done", time.monotonic()))
