"""Timing in interleaved rounds, so that slowdowns of the machine affect all contestants alike."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lm_experiments.errors import InputError
from lm_experiments.rundir.words import counted

# How the subjects start the training command in a process; an installed wheel has no scripts.
TRAIN = (sys.executable, "-m", "lm_experiments.cli.main", "train")

# The columns of a table, and those whose text begins at the left.
HEAD = ("contestant", "seconds", "tokens/s", "time", "theory", "MB", "10th to 90th percentile")
LEFT = ("contestant", "10th to 90th percentile")

Seconds = NDArray[np.float64]
Contestant = Callable[[], float]
"""A function that does some work once and returns the seconds it took."""


@dataclass(frozen=True)
class Timing:
    """The times of one contestant.

    Attributes:
        name: the name of the contestant.
        seconds: the median over rounds.
        ratio: the median over rounds of its time divided by the reference's in the same round.
        low: the 10th percentile of those ratios.
        high: the 90th percentile of those ratios.
        theory: what theory says the ratio is, where it says so.
        peak_bytes: the most memory it held, where that was measured: of the GPU, else of a process
            of its own beyond what it began with.
    """

    name: str
    seconds: float
    ratio: float
    low: float
    high: float
    theory: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Measurement:
    """The result of a benchmark.

    Attributes:
        title: one line that says what was timed.
        timings: one for each contestant, the reference first.
        rounds: the number of rounds.
        tokens: tokens processed in one timing, for tokens per second; None if not applicable.
        notes: lines to print below the table.
        reference: what ratios are relative to; None for the first contestant.
    """

    title: str
    timings: list[Timing]
    rounds: int
    tokens: int | None = None
    notes: list[str] = field(default_factory=list)
    reference: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return the result and a description of the machine, as plain values."""
        machine = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "device": device_name(),
        }
        return {**asdict(self), "machine": machine}


def device() -> torch.device:
    """Return where steps are measured: on the GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name() -> str:
    """Return what the device calls itself."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def precision() -> str:
    """Return what steps are computed in there, as runs name it."""
    return "bf16-mixed" if torch.cuda.is_available() else "32-true"


def synchronise() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(work: Callable[[], object]) -> Contestant:
    """Return a contestant that times ``work``, until the device has done it."""

    def _run() -> float:
        synchronise()
        start = time.perf_counter()
        work()
        synchronise()
        return time.perf_counter() - start

    return _run


def measure(contestants: Mapping[str, Contestant], rounds: int) -> list[Timing]:
    """Time every contestant in rounds, see `take_turns`; the first is the reference."""
    return summarise(take_turns(contestants, rounds))


def take_turns(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, Seconds]:
    """Return the seconds of every contestant in each round; they take turns in rotating order.

    A warm-up round before the first does not count.

    Raises:
        InputError: if ``rounds`` is below 1.
    """
    check_rounds(rounds)
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds[name].append(contestants[name]())
    return {name: np.array(values[1:]) for name, values in seconds.items()}


def check_rounds(rounds: int) -> None:
    """Raise an InputError if ``rounds`` is below 1."""
    if rounds < 1:
        raise InputError(f"--rounds {rounds} measures nothing; type --rounds 1 or more.")


def summarise(seconds: Mapping[str, list[float] | Seconds]) -> list[Timing]:
    """Return medians and ratios of the seconds of each contestant; the first is the reference."""
    reference = np.asarray(next(iter(seconds.values())))
    timings = []
    for name, values in seconds.items():
        low, ratio, high = np.percentile(np.asarray(values) / reference, (10, 50, 90)).tolist()
        timings.append(Timing(name, float(np.median(values)), ratio, low, high))
    return timings


def table(measurement: Measurement) -> str:
    """Return the result as a text table, one line per contestant."""
    reference = measurement.reference or measurement.timings[0].name
    rows = [row(timing, measurement.tokens) for timing in measurement.timings]
    shown = [name for name in HEAD if any(cells[name] for cells in rows)]
    widths = {name: max(len(name), *(len(cells[name]) for cells in rows)) for name in shown}
    lines = [measurement.title, ""]
    for cells in [{name: name if name != "contestant" else "" for name in HEAD}, *rows]:
        texts = [f"{cells[n]:{'<' if n in LEFT else '>'}{widths[n]}}" for n in shown]
        lines.append("  ".join(texts).rstrip())
    rounds = counted(measurement.rounds, "round")
    lines += ["", f"time: relative to {reference}, the median of {rounds}; above 1 is slower."]
    return "\n".join([*lines, *measurement.notes])


def row(timing: Timing, tokens: int | None) -> dict[str, str]:
    """Return the cells of a contestant's line, by the names of `HEAD`; empty where not measured."""
    peak, theory = timing.peak_bytes, timing.theory
    return {
        "contestant": timing.name,
        "seconds": f"{timing.seconds:.3f}",
        "tokens/s": "" if tokens is None else f"{tokens / timing.seconds:,.0f}",
        "time": f"{timing.ratio:.3f}",
        "theory": "" if theory is None else f"{theory:.3f}",
        "MB": "" if peak is None else f"{peak / 1e6:,.0f}",
        "10th to 90th percentile": f"{timing.low:.3f} to {timing.high:.3f}",
    }
