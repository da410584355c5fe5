"""Where a sweep stands: which runs are done, running, failed or waiting, and the time left.

It only reads small files, and those that have not changed once, so that looking is cheap while the
sweep goes on.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from lm_experiments.errors import InputError
from lm_experiments.report.collect import Run, read_run
from lm_experiments.report.time_left import Pace, Timing, last_end, whole_seconds
from lm_experiments.rundir.live import max_steps_of
from lm_experiments.rundir.metrics import last_rows
from lm_experiments.rundir.names import LOCK, METRICS
from lm_experiments.rundir.results import (
    DONE,
    ENDED,
    FAILED,
    INTERRUPTED,
    OVER,
    RUNNING,
    WAITING,
    Result,
    RunError,
)
from lm_experiments.rundir.sweeps import (
    SweepRecord,
    SweepRow,
    command_here,
    opened,
    read_sweep,
)
from lm_experiments.rundir.words import duration

# In the order in which they need attention.
STATES = (RUNNING, FAILED, INTERRUPTED, WAITING, ENDED, DONE)
# Those with training still to do.
OPEN = (RUNNING, INTERRUPTED, WAITING)
# File systems count time in steps of some milliseconds: what changed just now may change unnoticed.
SETTLED_SECONDS = 1.0

T = TypeVar("T")
# When each sweep, by its path, is looked at whole again, and how it stands until then.
_looks: dict[str, tuple[float, SweepStatus]] = {}
# The share of the time that looking at all runs may take.
LOOKING_SHARE = 0.001
# What was read of a sweep's or a run's folder whose entries have not changed since, by its path.
_known: dict[str, tuple[tuple[int, int] | None, Any]] = {}


@dataclass(frozen=True)
class RunStatus:
    """Where one run stands.

    Attributes:
        step: optimizer steps made, as far as they are logged.
        max_steps: the run's budget, None where no configuration says so yet.
        val_loss: nats per token, the newest; so is train_loss.
        val_tokens: over how many tokens val_loss is.
        seconds: seconds of training so far, at the last speed where the run has not ended.
        whole: seconds the whole run takes by its own measure, start and validation included.
        left: seconds until its end, None where nothing was measured.
    """

    run: Run
    step: int = 0
    max_steps: int | None = None
    val_loss: float | None = None
    val_tokens: int | None = None
    train_loss: float | None = None
    tokens_per_second: float | None = None
    seconds: float | None = None
    whole: float | None = None
    left: float | None = None

    @property
    def state(self) -> str:
        """One of `STATES`."""
        return self.run.status

    @property
    def traceback(self) -> Path | None:
        """The file with the traceback of a failed run."""
        error = self.run.result.error
        return self.run.directory / error.traceback if error and error.traceback else None

    @property
    def label(self) -> str:
        """The run's name for people: its arm, what tuning set, its seed."""
        tuned = [f"{key.rsplit('.', 1)[-1]}={value}" for key, value in self.run.setting.items()]
        return " ".join([self.run.arm, *tuned, f"s{self.run.seed}"])

    @property
    def share_left(self) -> float:
        """The part of its steps that is still to be made, from 0 to 1."""
        return 1 - min(1.0, self.step / self.max_steps) if self.max_steps else 1.0


@dataclass(frozen=True)
class SweepStatus:
    """Where a sweep stands, its runs in declared order.

    Attributes:
        command: what continues it where it lies now, empty where that is not known.
        tuning: whether a search is still going on, after which more runs are planned.
    """

    folder: Path
    runs: tuple[RunStatus, ...]
    command: str = ""
    tuning: bool = False

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How many runs are in each state."""
        found = Counter(run.state for run in self.runs)
        return {state: found[state] for state in STATES}

    @property
    def remaining(self) -> int:
        """Runs that the sweep is still to end: running, interrupted, waiting."""
        return sum(self.counts[state] for state in OPEN)

    def seconds_left(self, at_once: int | None = None) -> float | None:
        """Return the seconds until the last run ends, None where nothing was measured or planned.

        ``at_once`` runs are trained side by side, by default as many as run now.
        """
        if any(run.left is None for run in self.runs if run.state in OPEN):
            return None
        running = [run.left or 0.0 for run in self.runs if run.state == RUNNING]
        waiting = [run.left or 0.0 for run in self.runs if run.state in (INTERRUPTED, WAITING)]
        return last_end(running, waiting, at_once or len(running))


def sweep_status(folder: Path) -> SweepStatus:
    """Return where every planned run stands, or every run found where no plan is recorded.

    Raises `InputError` for a folder that is not a sweep's.
    """
    path = str(folder.resolve())
    record, command = _unchanged(path, lambda: _opened(folder), lambda record: True)
    # A directory that serves two purposes is one run, named by the first.
    rows = {row.directory: row for row in reversed(record.runs)}
    runs = _with_time_left([_remembered(folder, path, row) for row in reversed(rows.values())])
    tune = record.study.tune if record.study else None
    return SweepStatus(folder, tuple(runs), command, tune is not None and not tune.chosen)


def _opened(folder: Path) -> tuple[SweepRecord, str]:
    found = read_sweep(folder)
    record = opened(folder, found)
    return record, command_here(folder, found) if found else ""


def progress_line(folder: Path, at_once: int | None = None, ended: Path | None = None) -> str:
    """Return one line on the sweep, to be printed whenever one of its runs has ended.

    ``at_once`` runs are trained side by side; by default as many as run now, and one in the place
    of the run that just ended. Where its directory is given, that run alone is looked at as long
    as looking at all would take more than `LOOKING_SHARE` of the time.
    """
    status = _looked_at(folder, ended)
    return summary(status, at_once or status.counts[RUNNING] + 1)


def _looked_at(folder: Path, ended: Path | None) -> SweepStatus:
    path, now = str(folder.resolve()), time.monotonic()
    if ended is not None and (last := _looks.get(path)) and now < last[0]:
        status = _with_ended(last[1], ended)
        if status is not None:
            _looks[path] = (last[0], status)
            return status
    status = sweep_status(folder)
    after = time.monotonic()
    _looks[path] = (after + (after - now) / LOOKING_SHARE, status)
    return status


def _with_ended(status: SweepStatus, ended: Path) -> SweepStatus | None:
    """Return where a sweep stands after the end of one of its runs, None where it is unknown."""
    runs = list(status.runs)
    for place, before in enumerate(runs):
        if before.run.row.directory == ended.name:
            runs[place] = replace(_status(status.folder, before.run.row), left=before.left)
            return replace(status, runs=tuple(runs))
    return None


def summary(status: SweepStatus, at_once: int | None = None) -> str:
    """Return the totals in one line, the time left among them where it is known."""
    failed = f", {status.counts[FAILED]} failed" if status.counts[FAILED] else ""
    failed += f", {status.counts[ENDED]} ended by halving" if status.counts[ENDED] else ""
    remaining = f", {status.remaining} left" if status.remaining else ""
    seconds = status.seconds_left(at_once) if status.remaining else None
    time = f"; about {duration(seconds)} left" if seconds is not None else ""
    return f"{status.counts[DONE]} of {len(status.runs)} done{failed}{remaining}{time}"


def _unchanged(path: str, read: Callable[[], T], lasts: Callable[[T], bool]) -> T:
    """Return what was read of a folder, read anew where an entry came, went or was replaced since.

    Only what ``lasts`` until then is kept: a process trains a run without a change of entries.
    """
    try:
        # A Path would take longer than the look itself.
        stat = os.stat(path)  # noqa: PTH116
    except OSError:
        return read()
    stamp = (stat.st_ino, stat.st_mtime_ns)
    seen, value = _known.get(path, (None, None))
    if seen == stamp:
        return value  # type: ignore[no-any-return]
    value = read()
    if lasts(value) and time.time() - stat.st_mtime > SETTLED_SECONDS:
        _known[path] = (stamp, value)
    return value


def _remembered(folder: Path, path: str, row: SweepRow) -> RunStatus:
    """Return where a run stands; of one that is done or has not begun, from memory."""
    status = _unchanged(
        f"{path}/{row.directory}",
        lambda: _status(folder, row),
        lambda status: status.state in (*OVER, WAITING),
    )
    return status if status.run.row is row else _status(folder, row)


def _status(folder: Path, row: SweepRow) -> RunStatus:
    try:
        run = read_run(folder, row)
    except InputError as error:
        # A damaged result is this run's failure and hides no other.
        failed = Result(FAILED, row.arm, row.seed, error=RunError("damaged", str(error), None))
        run = Run(row, folder / row.directory, FAILED, failed)
    if run.status == WAITING:
        return RunStatus(run)
    # A run whose process could not write its result is known by its log.
    ended = run.status != RUNNING and run.result.steps is not None
    return _ended(run) if ended else _underway(run)


def _ended(run: Run) -> RunStatus:
    result = run.result
    return RunStatus(
        run,
        step=result.steps or 0,
        max_steps=max_steps_of(run.directory),
        val_loss=result.curve_loss if result.val_loss is None else result.val_loss,
        val_tokens=result.curve_tokens if result.val_loss is None else result.val_tokens,
        tokens_per_second=result.tokens_per_second,
        seconds=result.seconds,
        whole=whole_seconds(result),
    )


def _underway(run: Run) -> RunStatus:
    newest: dict[str, Any] = {}
    for row in last_rows(run.directory / METRICS):
        newest |= row
    step, max_steps = int(newest.get("step", 0)), max_steps_of(run.directory)
    speed, tokens = newest.get("train/tokens_per_second"), newest.get("tokens")
    trained = tokens / speed if speed and tokens else None
    whole = None
    if trained and step and max_steps:
        whole = _own_measure(run, newest, trained, max_steps / step)
    return RunStatus(
        run,
        step=step,
        max_steps=max_steps,
        val_loss=newest.get("val/loss"),
        val_tokens=newest.get("val/tokens"),
        train_loss=newest.get("train/loss"),
        tokens_per_second=speed,
        seconds=trained,
        whole=whole,
    )


def _own_measure(run: Run, newest: Mapping[str, Any], trained: float, times: float) -> float:
    """Return the seconds of a whole run that is to go on for ``times`` its steps so far.

    Its clock has counted validation once there was one; before that, only steps are known to come.
    """
    # A run that was continued has trained longer than its process has been there.
    so_far = max(trained, _seconds_of_process(run.directory))
    return so_far * times if "val/loss" in newest else so_far + trained * (times - 1)


def _seconds_of_process(directory: Path) -> float:
    """Return the seconds from the start of a run's last process to its newest row."""
    row, start = _changed(directory / METRICS), _changed(directory / LOCK)
    return row - start if row and start else 0.0


def _changed(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _with_time_left(runs: Sequence[RunStatus]) -> list[RunStatus]:
    """Estimate the time left of each run: by its arm, by the plan, or by any."""
    ended = {run.run.arm for run in runs if run.state == DONE and run.whole}
    measured = [run for run in runs if run.whole and (run.state == DONE or _tells(run, ended))]
    pace = Pace([Timing(r.run.arm, r.run.row.seconds, r.whole or 0.0) for r in measured])
    return [_with_left(run, pace) if run.state in OPEN else run for run in runs]


def _tells(run: RunStatus, ended: Set[str]) -> bool:
    """Whether a run that goes on is the best measure of its arm: better than a plan, if any."""
    by_clock = run.val_loss is not None or run.run.row.seconds is None
    return run.state in OPEN and run.run.arm not in ended and by_clock


def _with_left(run: RunStatus, pace: Pace) -> RunStatus:
    whole = pace.seconds(run.run.arm, run.run.row.seconds)
    if whole is None:
        return run
    since = _seconds_since_row(run.run.directory) if run.state == RUNNING else 0.0
    return replace(run, left=max(0.0, whole * run.share_left - since))


def _seconds_since_row(directory: Path) -> float:
    """Return how long ago a running run wrote its newest row, or began where it has none."""
    files = [directory / name for name in (LOCK, METRICS)]
    return max(0.0, time.time() - max((_changed(path) or 0.0) for path in files))
