"""Runs on this machine: side by side or one after another, each in processes of its own."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing import connection
from pathlib import Path

from lm_experiments.errors import InputError
from lm_experiments.launch.endings import (
    ELSEWHERE,
    Attempts,
    Ending,
    MemoryKills,
    ProcessExit,
    ending_of,
    failed,
)
from lm_experiments.launch.fork import ForwardedSignals, start_server
from lm_experiments.launch.processes import Training
from lm_experiments.launch.schedule import train_all
from lm_experiments.launch.sweep_line import SweepLine
from lm_experiments.launch.task import Policy, Task
from lm_experiments.rundir.claim import RunningElsewhereError, claimed
from lm_experiments.rundir.results import DONE, RunError

LOOK_EVERY = 0.5
# Sent to runs that are to save themselves because another run ends the sweep.
SAVE = signal.SIGUSR1


def train_side_by_side(
    tasks: Sequence[Task], policy: Policy, where: Sequence[Mapping[str, str]] = ({},)
) -> None:
    """Train runs, as many at once as there are places; SystemExit as `finish`, or by a signal.

    ``where`` is, for each place, the variables that the processes of a run there get.
    """
    start_server()
    line = SweepLine(tasks, policy.standing) if min(len(where), len(tasks)) > 1 else None
    runs = LocalRuns(where, line)
    with runs.signals:
        train_all(runs, tasks, policy)
        runs.obey()


def train_with_retries(task: Task, retries: int) -> Ending:
    """Train a run, and try again if it fails; return how the last attempt ended."""
    attempts = Attempts(retries)
    while attempts.again(task.directory, ending := train(task)):
        pass
    return ending


def train(task: Task) -> Ending:
    """Train a run directory in a process for each device, unless another process trains it.

    A SIGINT, SIGTERM or SIGUSR1 that reaches this process meanwhile is passed on to them. A
    process that fails ends the run: the others have a while to notice.
    """
    start_server()
    runs = LocalRuns()
    with runs.signals:
        runs.start(task)
        while (found := runs.next()) is None:
            pass
    return found[1]


def train_in_this_process(task: Task) -> Ending:
    """Train a run of one device without a process of its own, as a debugger needs it."""
    with ExitStack() as claim:
        ending = _guarded(task.directory, lambda: _train_here(task.directory), claim)
    assert ending is not None
    return ending


class LocalRuns:
    """Runs that are trained by processes of this machine.

    Args:
        where: for each run at once, the variables that its processes get.
        line: what tells of them, where several are trained at once.

    Attributes:
        signals: passes those that this process gets on to all runs; entered by the caller.
    """

    def __init__(
        self, where: Sequence[Mapping[str, str]] = ({},), line: SweepLine | None = None
    ) -> None:
        self._where, self._line = where, line
        self._free = set(range(len(where)))
        self._open: dict[Training, tuple[int, ExitStack]] = {}
        self._ended: list[tuple[Task, Ending]] = []
        self._kills = MemoryKills()
        self.signals = ForwardedSignals(lambda: [pid for run in self._open for pid in run.pids])

    @property
    def are_open(self) -> bool:
        """Whether one has not been returned by `next` yet."""
        return bool(self._open or self._ended)

    @property
    def have_room(self) -> bool:
        """Whether one more can be started."""
        return bool(self._free) and not self._ended

    def obey(self) -> None:
        """Raise SystemExit if a signal has asked for an end."""
        if self.signals.number is not None:
            raise SystemExit(128 + self.signals.number)

    def start(self, task: Task, ends_sweep: bool = False) -> None:
        """Start to train a run, unless another process trains it."""
        self.obey()
        claim = ExitStack()
        ending = _guarded(task.directory, lambda: self._begin(task, claim), claim)
        if ending is not None:
            claim.close()
            self._ended.append((task, ending))

    def next(self) -> tuple[Task, Ending] | None:
        """Return a run that has ended; None if none ends within a short time."""
        if not self._ended:
            self._look()
        if self._line is not None:
            self._line.show(wanted=not self._ended)
        return self._ended.pop(0) if self._ended else None

    def stop(self) -> None:
        """Let the runs that are being trained save themselves, and wait until they have."""
        if self.signals.number is None:
            self.signals.pass_on(SAVE)
        if self._line is not None:
            self._line.show(wanted=False)
        while self._open:
            self._look()

    def _begin(self, task: Task, claim: ExitStack) -> None:
        place = min(self._free)
        beside = dataclasses.replace(task, is_beside=self._line is not None)
        running = Training(beside, self._where[place], self.signals)
        self._open[running] = place, claim
        try:
            running.start()
        except BaseException:
            del self._open[running]
            raise
        self._free.remove(place)
        if self._line is not None:
            self._line.begun(task)

    def _look(self) -> None:
        sentinels = [each for running in self._open for each in running.sentinels]
        ended = connection.wait(sentinels, LOOK_EVERY)
        for running in [running for running in self._open if running.is_over(ended)]:
            place, claim = self._open.pop(running)
            with claim:
                ending = running.ending(self._kills)
            self._free.add(place)
            task = dataclasses.replace(running.task, is_beside=False)
            self._ended.append((task, ending))


def _guarded(
    directory: Path, training: Callable[[], Ending | None], claim: ExitStack
) -> Ending | None:
    """Claim a directory and train what is open; an ending where that cannot be done."""
    try:
        is_open = claim.enter_context(claimed(directory))
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
