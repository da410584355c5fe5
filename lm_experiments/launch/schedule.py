"""The runs of a sweep: started while there is room, tried again if they fail, each end told."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from lm_experiments.launch.endings import LOST, Attempts, Ending, failed, finish
from lm_experiments.launch.task import Policy, Task
from lm_experiments.rundir.results import RunError


class Runs(Protocol):
    """Runs in training, on this machine or through Ray."""

    @property
    def are_open(self) -> bool:
        """Whether one has not been returned by `next` yet."""

    @property
    def have_room(self) -> bool:
        """Whether one more can be started."""

    def start(self, task: Task, ends_sweep: bool) -> None:
        """Start to train a run; ``ends_sweep`` is whether no other follows if it fails."""

    def next(self) -> tuple[Task, Ending] | None:
        """Return a run that has ended; None if none ends within a short time."""

    def stop(self) -> None:
        """Let the runs that are being trained save themselves, and wait until they have."""


def train_all(runs: Runs, tasks: Sequence[Task], policy: Policy) -> None:
    """Train runs, as many at once as there is room for; print how each ended.

    Whatever ends this early, runs in training save themselves first; SystemExit as `finish`.
    """
    waiting = deque(tasks)
    attempts = {task.directory: Attempts(policy.retries) for task in tasks}
    try:
        while waiting or runs.are_open:
            while waiting and runs.have_room:
                task = waiting.popleft()
                is_last = attempts[task.directory].is_last
                runs.start(task, ends_sweep=policy.stop_on_failure and is_last)
            if (found := runs.next()) is None:
                continue
            task, ending = found
            if attempts[task.directory].again(task.directory, ending):
                waiting.appendleft(task)
                continue
            if ending.status == LOST:
                lost = RunError("ProcessDied", "It was lost with its worker each time.", None)
                ending = failed(task.directory, lost)
            finish(task.directory, ending, policy)
    except BaseException:
        runs.stop()
        raise
