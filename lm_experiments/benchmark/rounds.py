"""Timing in interleaved rounds: what slows the machine for a while slows all contestants alike."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from lm_experiments.errors import InputError

Contestant = Callable[[], float]
"""Does its work once and returns the seconds it took."""

SPREAD = (10, 50, 90)


@dataclass(frozen=True)
class Timing:
    """What one contestant took.

    Attributes:
        seconds: the median over rounds.
        ratio: the median over rounds of its time by the reference's time in the same round.
        low: the 10th percentile of those ratios.
        high: the 90th percentile of those ratios.
    """

    name: str
    seconds: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Measurement:
    """One subject, measured.

    Attributes:
        title: what was timed, in a line.
        timings: the reference first.
        rounds: how many rounds the medians are over.
        tokens: tokens in what was timed once, for tokens per second; None where there are none.
        notes: lines to print below the table.
    """

    title: str
    timings: list[Timing]
    rounds: int
    tokens: int | None = None
    notes: list[str] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """Return the report and the machine it is of, as plain values."""
        return {**asdict(self), "machine": machine()}


def machine() -> dict[str, Any]:
    """Return what the seconds, unlike the ratios, depend on."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def timed(work: Callable[[], object]) -> Contestant:
    """Return the contestant that does ``work`` and looks at the clock before and after."""

    def run() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return run


def measure(contestants: Mapping[str, Contestant], rounds: int) -> list[Timing]:
    """Time every contestant once per round, in an order that turns; the first is the reference.

    A round before the first warms all of them up and does not count.

    Raises:
        InputError: where ``rounds`` is below 1.
    """
    check_rounds(rounds)
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds[name].append(contestants[name]())
    return summarise({name: values[1:] for name, values in seconds.items()})


def check_rounds(rounds: int) -> None:
    """Raise InputError where ``rounds`` is below 1."""
    if rounds < 1:
        raise InputError(f"--rounds {rounds} measures nothing; type --rounds 1 or more.")


def summarise(seconds: Mapping[str, list[float]]) -> list[Timing]:
    """Return medians and ratios of seconds by contestant and round; the first is the reference."""
    reference = np.asarray(next(iter(seconds.values())))
    return [_timing(name, np.asarray(values), reference) for name, values in seconds.items()]


def table(report: Measurement) -> str:
    """Return the report as text, one line a contestant."""
    reference = report.timings[0].name
    width = max(len(timing.name) for timing in report.timings)
    head = f"{'':{width}}  {'seconds':>8}  {'tokens/s':>9}  {'time':>6}  10th to 90th percentile"
    lines = [report.title, "", head]
    lines += [_line(timing, width, report.tokens) for timing in report.timings]
    rounds = f"{report.rounds} round" + ("s" if report.rounds > 1 else "")
    lines += ["", f"time: relative to {reference}, the median of {rounds}; above 1 is slower."]
    return "\n".join([*lines, *report.notes])


def _timing(name: str, seconds: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> Timing:
    low, ratio, high = np.percentile(seconds / reference, SPREAD)
    return Timing(name, float(np.median(seconds)), float(ratio), float(low), float(high))


def _line(timing: Timing, width: int, tokens: int | None) -> str:
    speed = "" if tokens is None else f"{tokens / timing.seconds:,.0f}"
    return (
        f"{timing.name:{width}}  {timing.seconds:8.3f}  {speed:>9}  {timing.ratio:6.3f}  "
        f"{timing.low:.3f} to {timing.high:.3f}"
    )
