"""The time left of simulated sweeps: within a quarter of the truth once three runs have ended."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lm_experiments.report import progress
from lm_experiments.report.progress import SweepStatus, sweep_status
from lm_experiments.report.time_left import Pace, Timing, last_end
from lm_experiments.rundir.claim import claimed
from lm_experiments.rundir.metrics import write_rows
from lm_experiments.rundir.results import DONE, FAILED, Result, RunError, write_result
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, write_sweep

STEPS, TOKENS, LOG_EVERY = 1000, 10, 200
NOW = 1_800_000_000.0
# The parts of a run's time before its first step and after its last one, and of validation.
START, END, VALIDATION = 0.1, 0.04, 0.1
STEPPING = 1 - START - END
# Runs of an arm take up to so much more or less than its mean.
SPREAD = 0.1
TOLERANCE = 0.25


@dataclass(frozen=True)
class Simulated:
    """A run of a simulated sweep, in seconds.

    Attributes:
        seconds: what it takes as a whole.
        planned: what the plan expected.
        fails_after: when it fails, None where it does not.
        restarted: the seconds its first process took, before it was interrupted.
        began, ends: when it is trained.
    """

    arm: str
    seed: int
    seconds: float
    planned: float | None
    fails_after: float | None = None
    restarted: float = 0.0
    began: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.arm}-s{self.seed}"

    @property
    def ends(self) -> float:
        return self.began + (self.fails_after or self.seconds - self.restarted)


def sweep(costs: dict[str, float], seeds: int, planned: float | None = 0.5) -> list[Simulated]:
    """Runs of arms, arm by arm; the plan is wrong by the same factor everywhere."""
    runs = []
    for index, (arm, cost) in enumerate(costs.items()):
        for seed in range(seeds):
            # Runs of an arm differ by up to a tenth, in no order.
            seconds = cost * (1 + SPREAD * (((7 * seed + 3 * index) % 10) / 4.5 - 1))
            runs.append(Simulated(arm, seed, seconds, planned and planned * cost))
    return runs


def scheduled(runs: Sequence[Simulated], slots: int) -> list[Simulated]:
    """The runs with the times at which they begin, each in the place that gets free first."""
    free = [0.0] * slots
    found = []
    for run in runs:
        found.append(replace(run, began=free[0]))
        heapq.heapreplace(free, found[-1].ends)
    return found


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be `NOW` for whoever looks."""
    monkeypatch.setattr(progress.time, "time", lambda: NOW)


def write(folder: Path, run: Simulated, now: float) -> None:
    """Let a run directory that was begun be as it is at a time."""
    directory = folder / run.name
    (directory / "config.yaml").write_text(f"trainer:\n  max_steps: {STEPS}\n")
    of_process = max(0.0, now - run.began)
    elapsed = run.restarted + of_process
    step = int(STEPS * min(1.0, max(0.0, (elapsed / run.seconds - START) / STEPPING)))
    step -= step % LOG_EVERY
    lock, rows = directory / ".lock", directory / "metrics.jsonl"
    lock.touch()
    os.utime(lock, (NOW - of_process, NOW - of_process))
    trained = run.seconds * (STEPPING - VALIDATION)
    if step:
        speed = STEPS * TOKENS / trained
        row = {"step": step, "tokens": step * TOKENS, "train/tokens_per_second": speed}
        write_rows(rows, [row])
        written = NOW - (elapsed - run.seconds * (START + step / STEPS * STEPPING))
        os.utime(rows, (written, written))
    if now >= run.ends:
        status = DONE if run.fails_after is None else FAILED
        last = Result(status, run.arm, run.seed, outcome="ok", steps=STEPS, seconds=trained)
        if status == FAILED:
            last = replace(last, outcome=None, steps=step, error=RunError("OSError", "full"))
        write_result(directory, replace(last, wall_seconds=run.ends - run.began))


def at(folder: Path, runs: Sequence[Simulated], now: float) -> SweepStatus:
    """Where the sweep stands at a time: ended runs have results, running ones are held."""
    rows = [SweepRow(run.arm, run.seed, run.name, seconds=run.planned) for run in runs]
    folder.mkdir(parents=True)
    write_sweep(folder, SweepRecord("simulated", runs=rows))
    with ExitStack() as held:
        for run in runs:
            if now < run.began and not run.restarted:
                continue
            (folder / run.name).mkdir()
            if run.began <= now < run.ends:
                held.enter_context(claimed(folder / run.name))
            write(folder, run, now)
        return sweep_status(folder)


def misses(root: Path, runs: Sequence[Simulated], slots: int) -> Iterator[str]:
    """The moments after a run has ended, from the third on, at which the time left is wrong."""
    runs = scheduled(runs, slots)
    ends = sorted(run.ends for run in runs)
    longest = max(run.seconds for run in runs)
    for count in range(3, len(runs)):
        # Just after it has ended, when its place is taken already.
        now = ends[count - 1] + 1e-6
        truth = ends[-1] - now
        told = at(root / f"after-{count}", runs, now).seconds_left(slots)
        # Runs of an arm differ, which shows where seconds are left.
        allowed = max(TOLERANCE * truth, SPREAD * longest)
        if told is None or abs(told - truth) > allowed:
            yield f"after {count} of {len(runs)}: {told} told, {truth:.0f} true"


EQUAL = sweep({"a": 60.0, "b": 60.0, "c": 60.0}, 6)
SLOW_LAST = sweep({"a": 60.0, "b": 60.0, "slow": 180.0}, 6)
SLOW_FIRST = sweep({"slow": 180.0, "a": 60.0, "b": 60.0}, 6)
FAILING = [replace(run, fails_after=5.0) if run.name == "b-s1" else run for run in SLOW_LAST]
RESTARTED = [replace(run, restarted=90.0) if run.name == "slow-s0" else run for run in SLOW_LAST]
UNPLANNED = sweep({"a": 60.0, "b": 66.0, "c": 60.0}, 6, planned=None)


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize(
    "runs",
    [EQUAL, SLOW_LAST, SLOW_FIRST, FAILING, RESTARTED, UNPLANNED],
    ids=["equal", "slow last", "slow first", "failing", "restarted", "without a plan"],
)
def test_the_time_left_is_within_a_quarter_once_three_runs_have_ended(
    tmp_path: Path, runs: Sequence[Simulated], slots: int
) -> None:
    assert list(misses(tmp_path, runs, slots)) == []


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_a_resumed_sweep_goes_by_what_its_earlier_runs_took(tmp_path: Path, slots: int) -> None:
    """Nine runs are done and one is half done when the command is typed again."""
    earlier = [replace(run, began=-1000.0) for run in SLOW_LAST[:9]]
    half = replace(SLOW_LAST[9], restarted=SLOW_LAST[9].seconds / 2)
    runs = [*earlier, *scheduled([half, *SLOW_LAST[10:]], slots)]
    truth = max(run.ends for run in runs)
    told = at(tmp_path / "resumed", runs, 0.001).seconds_left(slots)
    assert told == pytest.approx(truth, rel=TOLERANCE)


def test_an_arm_not_seen_yet_is_planned_and_corrected_by_the_others() -> None:
    pace = Pace([Timing("a", 10.0, 20.0), Timing("a", 10.0, 22.0), Timing("b", 20.0, 42.0)])
    assert pace.seconds("a", 10.0) == 21.0
    assert pace.seconds("new", 100.0) == pytest.approx(210.0)
    assert pace.seconds("new", None) == 22.0
    assert Pace([]).seconds("new", 5.0) == 5.0
    assert Pace([]).seconds("new", None) is None


@pytest.mark.parametrize(
    ("running", "waiting", "at_once", "seconds"),
    [
        ([], [10, 10, 10], 1, 30),
        ([], [10, 10, 10], 2, 20),
        ([5], [10, 10, 10], 2, 20),
        ([30, 5], [10], 2, 30),
        ([1, 2, 3, 4], [10], 2, 11),
        ([7], [], 0, 7),
    ],
)
def test_the_last_end_counts_places_and_the_last_wave(
    running: Sequence[float], waiting: Sequence[float], at_once: int, seconds: float
) -> None:
    assert last_end(running, waiting, at_once) == seconds
