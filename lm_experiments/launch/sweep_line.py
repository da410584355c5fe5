"""What is said of runs side by side: a line when one starts, and in a terminal how all stand."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lm_experiments.errors import InputError
from lm_experiments.launch.task import Task

# Reading how a sweep stands takes a look at each of its runs.
SHOW_EVERY = 3.0
CLEAR = "\r\x1b[K"


class SweepLine:
    """One line at the bottom of a terminal in the place of a bar for each run.

    Args:
        tasks: the runs that are to be trained.
        standing: returns how the sweep of a run directory stands, in one line.
    """

    def __init__(self, tasks: Sequence[Task], standing: Callable[[Path], str]) -> None:
        self._numbers = {task.directory: number for number, task in enumerate(tasks, 1)}
        self._standing = standing
        self._moving = sys.stderr.isatty()
        self._shown, self._next = False, 0.0

    def begun(self, task: Task) -> None:
        """Say that a run has been started."""
        self._clear()
        number = self._numbers[task.directory]
        print(f"{task.directory.name}: started, {number} of {len(self._numbers)}", flush=True)

    def show(self, wanted: bool) -> None:
        """Show how the sweep stands, now and then; clear the line where other lines follow."""
        if not wanted:
            self._clear()
        elif self._moving and time.monotonic() > self._next:
            self._next = time.monotonic() + SHOW_EVERY
            try:
                text = self._standing(next(iter(self._numbers)))
            except (InputError, OSError):
                return
            # In the last column some terminals begin a new line.
            width = shutil.get_terminal_size().columns - 1
            self._write(f"{CLEAR}{text[:width]}")
            self._shown = True

    def _clear(self) -> None:
        if self._shown:
            self._write(CLEAR)
            self._shown, self._next = False, 0.0

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
