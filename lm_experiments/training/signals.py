"""The signals that ask a program to end: Ctrl-C, SIGTERM, a closed terminal, SLURM's SIGUSR1."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# Within this time a signal that comes again was sent once and came two ways: to all processes of
# a sweep, by a terminal or a scheduler, and passed on by the process that started them.
SAME_SIGNAL_SECONDS = 1.0


class StopSignals:
    """Handles the signals that ask this process to end, while its ``with`` block runs.

    The first signal raises SystemExit with 128 plus its number, as a shell reports it. While
    `deferred` is set it is only recorded. A later one ends the process at once.

    Attributes:
        number: the first signal, None before it.
        came: when it came, in seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.deferred = False
        self.came = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        self._before = self.take()
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def take(self) -> dict[int, Any]:
        """Install the handlers, in the main thread only; return those there were before.

        Under nohup a closed terminal ends nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            return {}
        kept = (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else ()
        taken = (number for number in SIGNALS if number not in kept)
        return {number: signal.signal(number, self._note) for number in taken}

    def is_another(self, number: int) -> bool:
        """Record a signal; return whether it is neither the first nor a copy of the first."""
        if self.number is None:
            self.number, self.came = number, time.monotonic()
        return time.monotonic() - self.came > SAME_SIGNAL_SECONDS

    def _note(self, number: int, frame: FrameType | None) -> None:
        first = self.number is None
        if self.is_another(number):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if first and not self.deferred:
            raise SystemExit(128 + number)
