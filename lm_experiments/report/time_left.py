"""How long runs take, learned from those that ended, and when the last of a sweep ends."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lm_experiments.rundir.results import CUT_SHORT, DONE, Result

NEWEST_OF_ARM, NEWEST_OF_ALL = 5, 10


@dataclass(frozen=True)
class Timing:
    """What one whole run took, in seconds, start and validation included.

    Attributes:
        planned: what the plan expected of it, None where no plan says so.
    """

    arm: str
    planned: float | None
    taken: float


class Pace:
    """The seconds of whole runs: as measured for their arm, else as planned, corrected by all.

    The newest measures count, since a machine may be shared.

    Args:
        timings: in the order in which the runs were started.
    """

    def __init__(self, timings: Sequence[Timing]) -> None:
        self._by_arm: dict[str, list[float]] = {}
        for timing in timings:
            self._by_arm.setdefault(timing.arm, []).append(timing.taken)
        pairs = [(t.planned, t.taken) for t in timings if t.planned][-NEWEST_OF_ALL:]
        expected, taken = (sum(each) for each in zip(*pairs, strict=True)) if pairs else (1, 1)
        self._correction = taken / expected

    def seconds(self, arm: str, planned: float | None) -> float | None:
        """Return what a run takes, None where nothing was measured or planned."""
        if arm in self._by_arm:
            return median(self._by_arm[arm][-NEWEST_OF_ARM:])
        if planned:
            return planned * self._correction
        known = [taken for each in self._by_arm.values() for taken in each]
        return median(known) if known else None


def whole_seconds(result: Result | None) -> float | None:
    """Return what an ended run took, None where it did not make all its steps."""
    if result is None or result.status != DONE or result.outcome in CUT_SHORT:
        return None
    # The last process of a run that was continued is not the whole run.
    return max(result.seconds or 0.0, result.wall_seconds or 0.0) or None


def last_end(running: Sequence[float], waiting: Sequence[float], at_once: int) -> float:
    """Return the seconds until the last run ends.

    Args:
        running: seconds left of the runs being trained.
        waiting: seconds of the others, in the order in which they take the places that get free.
        at_once: how many runs are trained side by side, at least those that are running.
    """
    ends = [*running, *[0.0] * (max(1, at_once) - len(running))]
    heapq.heapify(ends)
    for seconds in waiting:
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends)
