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
from collections.abc import Sequence
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import FrameType

from lm_experiments.training.signals import SIGNALS, StopSignals

# The exit code of a run that another process trains; 75 is "try again later" to many programs.
RUNS_ELSEWHERE = 75
PRELOADED = [
    "lm_experiments.study.server_signals",
    "lm_experiments.training.fit",
    "lm_experiments.study.choices",
    __name__,
    "wandb",
]


def start_server() -> None:
    """Start the server; it loads its imports while the caller goes on."""
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()


def train_isolated(run_dir: Path, identity: dict[str, str], code_paths: Sequence[str]) -> int:
    """Train a run directory in a process of its own; return its exit code.

    A SIGINT, SIGTERM or SIGUSR1 that reaches this process while it waits is passed on.
    Negative codes name the signal that killed the process.

    Raises:
        SystemExit: 128 plus its number where such a signal came, however the run took it.
    """
    start_server()
    context = multiprocessing.get_context("forkserver")
    arguments = (run_dir, identity, list(code_paths), dict(os.environ))
    process = context.Process(target=_train, args=arguments)
    forwarding = _Forwarding(process)
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
    identity: dict[str, str],
    code_paths: list[str],
    environment: dict[str, str],
) -> None:
    # The server was forked off earlier; what its caller's environment says now is what counts.
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    from lm_experiments.training.fit import RunningElsewhereError, train_directory

    from .choices import load_code, load_installed

    load_installed()
    load_code(code_paths)
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


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


class _Forwarding(StopSignals):
    """While a child is waited for, the signals that end a program are passed on to it.

    A terminal or a scheduler may have sent them to the child too, which takes both for one.
    """

    def __init__(self, process: ForkServerProcess) -> None:
        super().__init__()
        self.process = process

    def started(self) -> None:
        """End the child, where a signal came before it could be told."""
        if self.number is not None:
            self.process.kill()

    def _note(self, number: int, frame: FrameType | None) -> None:
        another = self.is_another(number)
        if self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGKILL if another else number)
