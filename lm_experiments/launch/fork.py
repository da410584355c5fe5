"""A process for each run, so that nothing a run does reaches the next one.

The processes are forked from a server that has the heavy imports loaded, so that a start costs
milliseconds and not seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import FrameType

from lm_experiments.rundir.identity import Identity
from lm_experiments.training.signals import SIGNALS, StopSignals

# The exit code of a run that another process trains; 75 is "try again later" to many programs.
RUNS_ELSEWHERE = 75
PRELOADED = [
    "lm_experiments.launch.server_signals",
    "lm_experiments.training.fit",
    "lm_experiments.training.user_code",
    __name__,
    "wandb",
]


def start_server() -> None:
    """Start the server; it loads its imports while the caller goes on."""
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()


def train_isolated(
    run_dir: Path, identity: Identity, code_paths: Sequence[str], devices: int
) -> int:
    """Train a run directory in a process of its own for each device; return the exit code.

    A SIGINT, SIGTERM or SIGUSR1 that reaches this process while it waits is passed on.
    Negative codes name the signal that killed the process.

    Raises:
        SystemExit: 128 plus its number where such a signal came, however the run took it.
    """
    start_server()
    if devices > 1:
        from lm_experiments.launch.processes import train_together

        return train_together(run_dir, identity, code_paths, devices)
    context = multiprocessing.get_context("forkserver")
    arguments = (run_dir, identity, list(code_paths), dict(os.environ))
    process = context.Process(target=_train, args=arguments)
    forwarding = Forwarding([process])
    with forwarding:
        process.start()
        forwarding.started()
        process.join()
    if forwarding.number is not None:
        raise SystemExit(128 + forwarding.number)
    assert process.exitcode is not None
    return process.exitcode


def _train(
    run_dir: Path,
    identity: Identity,
    code_paths: list[str],
    environment: dict[str, str],
) -> None:
    begin(environment, code_paths)
    from lm_experiments.training.fit import RunningElsewhereError, train_directory

    try:
        train_directory(run_dir, identity)
    except RunningElsewhereError:
        sys.exit(RUNS_ELSEWHERE)
    except Exception as error:
        # The run's log has the traceback and its result the reason, which the sweep prints;
        # unless neither could be written.
        if not (run_dir / "result.json").exists():
            reason = " ".join(str(error).split())
            print(f"{run_dir}: {type(error).__name__}: {reason}", file=sys.stderr, flush=True)
        sys.exit(1)


def begin(environment: Mapping[str, str], code_paths: Sequence[str]) -> None:
    """Make a process that the server forked the caller's: its environment, its end, its code."""
    # The server was forked off earlier; what its caller's environment says now is what counts.
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    from lm_experiments.training.user_code import load_code, load_installed

    load_installed()
    load_code(code_paths)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


class Forwarding(StopSignals):
    """While children are waited for, the signals that end a program are passed on to them.

    A terminal or a scheduler may have sent them to a child too, which takes both for one.
    """

    def __init__(self, processes: Sequence[ForkServerProcess]) -> None:
        super().__init__()
        self.processes = processes

    def started(self) -> None:
        """End the children, where a signal came before they could be told."""
        if self.number is not None:
            for process in self.processes:
                process.kill()

    def _note(self, number: int, frame: FrameType | None) -> None:
        another = self.is_another(number)
        for process in self.processes:
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, signal.SIGKILL if another else number)
