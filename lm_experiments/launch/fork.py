"""Processes forked from a server that has the heavy imports loaded.

A start takes milliseconds instead of seconds, and runs do not share any state.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import connection
from types import FrameType

from lm_experiments.training.signals import StopSignals

# What the server imports before it forks. `server_signals` is first: it takes effect on import.
PRELOAD = [
    "lm_experiments.launch.server_signals",
    "lm_experiments.launch.processes",
    "lm_experiments.training.fit",
    "lm_experiments.training.user_code",
    "wandb",
]


def start_server() -> None:
    """Start the server; it loads its imports while the caller goes on."""
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    forkserver.ensure_running()


def set_up_child(environment: Mapping[str, str], code_paths: Sequence[str]) -> None:
    """Set up a forked child: the caller's environment, exit with the parent, user code."""
    # The server was started earlier, with the environment of that time.
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    # Imported by the server only, where it has taken effect.
    from lm_experiments.launch.server_signals import release_signals

    release_signals()
    from lm_experiments.training.user_code import load_code, load_installed

    load_installed()
    load_code(code_paths)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


class ForwardedSignals(StopSignals):
    """Passes the signals that ask a program to end on to child processes.

    A terminal or a scheduler may have sent them to a child as well; `StopSignals` takes both for
    one.

    Args:
        children: returns the processes that are not known to have ended.
    """

    def __init__(self, children: Callable[[], Iterable[int]]) -> None:
        super().__init__()
        self.children = children

    def pass_on(self, number: int) -> None:
        """Ask the children to end as if this process had been asked to."""
        self._note(number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        another = self.is_another(number)
        for pid in self.children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if another else number)
