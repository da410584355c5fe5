"""Where a sweep stands: which runs are done, running, failed or waiting, and the time left.

It only reads small files, so that looking is cheap while the sweep goes on.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.rundir.live import is_held, max_steps_of
from lm_experiments.rundir.metrics import last_rows
from lm_experiments.rundir.names import CONFIG, LOCK, METRICS, RESULT, SWEEP, damaged
from lm_experiments.rundir.results import (
    CUT_SHORT,
    DONE,
    FAILED,
    INTERRUPTED,
    RUNNING,
    WAITING,
    Result,
    RunError,
    read_result,
)
from lm_experiments.rundir.sweeps import SweepRecord, read_sweep

# As they are worth looking at.
STATES = (RUNNING, FAILED, INTERRUPTED, WAITING, DONE)
# Those that the sweep is still to end.
OPEN = (RUNNING, INTERRUPTED, WAITING)


@dataclass(frozen=True)
class RunStatus:
    """Where one run stands.

    Attributes:
        directory: the run directory, which a waiting run may lack.
        setting: what tuning set for this run.
        state: waiting, running, done, failed or interrupted.
        step: optimizer steps done, as far as they are logged.
        max_steps: the run's budget, None where no configuration says so yet.
        val_loss: nats per token, the newest; so is train_loss.
        seconds: seconds of training so far, at the last speed where the run has not ended.
        whole: seconds the whole run takes by its own measure, start and validation included.
        left: seconds until its end, None where nothing was measured.
        reason: why it failed; its traceback is in the file named by ``traceback``.
    """

    directory: Path
    arm: str
    seed: int
    setting: Mapping[str, Any] = field(default_factory=dict, hash=False)
    state: str = WAITING
    step: int = 0
    max_steps: int | None = None
    val_loss: float | None = None
    train_loss: float | None = None
    tokens_per_second: float | None = None
    seconds: float | None = None
    whole: float | None = None
    left: float | None = None
    outcome: str | None = None
    reason: str | None = None
    traceback: Path | None = None

    @property
    def label(self) -> str:
        """The run's name for people: its arm, what tuning set, its seed."""
        tuned = [f"{key.rsplit('.', 1)[-1]}={value}" for key, value in self.setting.items()]
        return " ".join([self.arm, *tuned, f"s{self.seed}"])

    @property
    def share_left(self) -> float:
        """The part of its steps that is still to be made, from 0 to 1."""
        return 1 - min(1.0, self.step / self.max_steps) if self.max_steps else 1.0


@dataclass(frozen=True)
class SweepStatus:
    """Where a sweep stands, its runs in declared order.

    Attributes:
        command: what was typed to start it, empty where that is not known.
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
        return len(self.runs) - self.counts[DONE] - self.counts[FAILED]

    def seconds_left(self, at_once: int | None = None) -> float | None:
        """Return the seconds until the last run ends, None where nothing was measured.

        Args:
            at_once: how many runs are trained side by side; None for as many as run now.
        """
        left = [run.left for run in self.runs if run.left is not None]
        if len(left) < self.remaining:
            return None
        side_by_side = at_once or max(1, self.counts[RUNNING])
        longest = max((run.left or 0.0 for run in self.runs if run.state == RUNNING), default=0.0)
        return max(longest, sum(left) / side_by_side)


def sweep_status(folder: Path) -> SweepStatus:
    """Return where every planned run stands, or every run found where no plan is recorded.

    Raises:
        InputError: where the folder is not that of a sweep.
    """
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; {_nearby(folder)}.")
    record = read_sweep(folder) or SweepRecord()
    planned = _planned(folder, record) if record.runs else _found(folder)
    runs = _with_time_left([_read_run(run) for run in planned])
    tune = record.study.tune if record.study else None
    return SweepStatus(
        folder=folder,
        runs=tuple(runs),
        command=record.command,
        tuning=tune is not None and not tune.chosen,
    )


def progress_line(folder: Path) -> str:
    """Return one line on the sweep, to be printed whenever one of its runs has ended.

    The run that just ended has left a place free, which counts for the time left.
    """
    status = sweep_status(folder)
    return summary(status, at_once=status.counts[RUNNING] + 1)


def summary(status: SweepStatus, at_once: int | None = None) -> str:
    """Return the totals in one line, the time left among them where it is known."""
    failed = f", {status.counts[FAILED]} failed" if status.counts[FAILED] else ""
    remaining = f", {status.remaining} left" if status.remaining else ""
    seconds = status.seconds_left(at_once) if status.remaining else None
    time = f"; about {duration(seconds)} left" if seconds is not None else ""
    return f"{status.counts[DONE]} of {len(status.runs)} done{failed}{remaining}{time}"


def duration(seconds: float) -> str:
    """Return seconds as people say them: 4.5 s, 45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def _read_run(run: RunStatus) -> RunStatus:
    """Return the run with what its directory says; the one planned says what it is."""
    result = _read_result(run.directory)
    if result and result.status == DONE:
        return _ended(run, result)
    lock = run.directory / LOCK
    if is_held(lock):
        return _underway(run, RUNNING)
    if result:
        return _ended(run, result)
    # What has begun, has no end, and is not held by a process was killed.
    begun = lock.exists() or (run.directory / METRICS).exists()
    return _underway(run, INTERRUPTED) if begun else run


def _ended(run: RunStatus, result: Result) -> RunStatus:
    seconds, outcome = result.seconds, result.outcome
    full = result.status == DONE and outcome not in CUT_SHORT
    return replace(
        run,
        state=result.status,
        step=result.steps or 0,
        max_steps=max_steps_of(run.directory),
        val_loss=result.val_loss,
        tokens_per_second=result.tokens_per_second,
        seconds=seconds,
        whole=_wall_seconds(run.directory, seconds) if full and seconds else None,
        outcome=outcome,
        reason=str(result.error) if result.error else None,
        traceback=_traceback(run.directory, result.error),
    )


def _traceback(directory: Path, error: RunError | None) -> Path | None:
    return directory / error.traceback if error and error.traceback else None


def _underway(run: RunStatus, state: str) -> RunStatus:
    newest: dict[str, Any] = {}
    for row in last_rows(run.directory / METRICS):
        newest |= row
    step, max_steps = int(newest.get("step", 0)), max_steps_of(run.directory)
    speed, tokens = newest.get("train/tokens_per_second"), newest.get("tokens")
    seconds = tokens / speed if speed and tokens else None
    return replace(
        run,
        state=state,
        step=step,
        max_steps=max_steps,
        val_loss=newest.get("val/loss"),
        train_loss=newest.get("train/loss"),
        tokens_per_second=speed,
        seconds=seconds,
        whole=seconds * max_steps / step if seconds and step and max_steps else None,
    )


def _with_time_left(runs: Sequence[RunStatus]) -> list[RunStatus]:
    """Estimate each run's time from the other runs of its arm, from itself, or from any."""
    whole = _whole_by_arm(runs)
    anything = [value for values in whole.values() for value in values]
    typical = {run.arm: whole.get(run.arm, anything) for run in runs}
    return [
        replace(run, left=median(typical[run.arm]) * run.share_left)
        if typical[run.arm] and run.state in OPEN
        else run
        for run in runs
    ]


def _whole_by_arm(runs: Sequence[RunStatus]) -> dict[str, list[float]]:
    """Return the seconds of whole runs, measured by those that ended, else by those that run."""
    whole: dict[str, list[float]] = {}
    for states in ((DONE,), OPEN):
        found: dict[str, list[float]] = {}
        for run in runs:
            if run.state in states and run.whole:
                found.setdefault(run.arm, []).append(run.whole)
        whole = found | whole
    return whole


def _wall_seconds(directory: Path, seconds: float) -> float:
    """Return how long a run took from its configuration to its result.

    Files that were copied, or a run that was continued later, tell nothing; then its training
    alone counts, as its result has it.
    """
    try:
        begun = (directory / CONFIG).stat().st_mtime
    except OSError:
        return seconds
    wall = (directory / RESULT).stat().st_mtime - begun
    return wall if seconds <= wall <= 3 * seconds + 60 else seconds


def _planned(folder: Path, record: SweepRecord) -> list[RunStatus]:
    """Return the runs of the plan, each once whatever it serves for."""
    runs = {
        row.directory: RunStatus(folder / row.directory, row.arm, row.seed, row.setting)
        for row in reversed(record.runs)
    }
    return list(reversed(runs.values()))


def _found(folder: Path) -> list[RunStatus]:
    """Return the runs that lie in a folder without a plan."""
    if (folder / CONFIG).is_file():
        raise InputError(f"{folder} is a single run; type the folder it lies in, {folder.parent}.")
    configs = sorted(folder.glob(f"*/{CONFIG}"))
    if configs:
        return [_unplanned(path.parent) for path in configs]
    if sweeps := sorted(path.parent for path in folder.glob(f"*/{SWEEP}")):
        raise InputError(f"{folder} holds sweeps, not runs; type one of them, such as {sweeps[0]}.")
    raise InputError(f"{folder} holds no runs; type the folder of a sweep, such as runs/NAME.")


def _unplanned(directory: Path) -> RunStatus:
    # Imported here because a planned sweep needs no YAML.
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        values = yaml.load((directory / CONFIG).read_bytes(), Loader=loader)
        return RunStatus(directory, str(values["arm"]), int(values["seed"]))
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise damaged(directory / CONFIG, "it names no arm and seed") from error


def _read_result(directory: Path) -> Result | None:
    """Return a run's result, None where there is none; one damaged run hides no other."""
    try:
        return read_result(directory)
    except InputError as error:
        return Result(FAILED, "", 0, error=RunError("damaged", str(error), None))


def _nearby(folder: Path) -> str:
    there = [path.name for path in folder.parent.glob("*") if path.is_dir()]
    if near := difflib.get_close_matches(folder.name, there, n=1, cutoff=0.4):
        return f"did you mean {folder.parent / near[0]}?"
    return "type the folder of a sweep, such as runs/NAME"
