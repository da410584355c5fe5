"""The plan of a sweep: processor seconds and memory by arms and seeds."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lm_experiments.benchmark.rounds import TRAIN, Measurement, summarise, take_turns
from lm_experiments.errors import InputError

SIZES = ((1, 1), (10, 3), (40, 5))


def planning(rounds: int) -> Measurement:
    """Take the processor time of ``train.py -m ... plan=true`` for sweeps of several sizes."""
    return compare(SIZES, rounds)


def compare(sizes: tuple[tuple[int, int], ...], rounds: int) -> Measurement:
    """Plan a sweep of each size, (arms, seeds); see `planning`."""
    peaks: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        contestants = {}
        for arms, seeds in sizes:
            name = f"{arms} x {seeds} runs"
            contestants[name] = _contestant(arms, seeds, Path(folder), name, peaks)
        seconds = take_turns(contestants, rounds)
    timings = [
        dataclasses.replace(timing, peak_bytes=peaks[timing.name]) for timing in summarise(seconds)
    ]
    runs = [arms * seeds for arms, seeds in sizes]
    each = np.diff([timing.seconds for timing in timings])[-1:] / np.diff(runs)[-1:]
    notes = [f"Each further run takes {1000 * cost:.0f} ms." for cost in each]
    title = "Plans of sweeps over arms x seeds, from the command to its plan; processor seconds."
    return Measurement(title, timings, rounds, notes=notes)


def _contestant(
    arms: int, seeds: int, folder: Path, name: str, peaks: dict[str, int]
) -> Callable[[], float]:
    rates = ",".join(f"{1e-4 * (1 + number):.4g}" for number in range(arms))
    words = [
        "-m",
        f"optimizer.lr={rates}",
        f"seed={','.join(map(str, range(seeds)))}",
        "plan=true",
        "logger=none",
        "data.val_fraction=0.01",
        "runs_from=[]",
    ]
    environment = {**os.environ, "LM_EXPERIMENTS_CACHE": str(folder / "cache")}

    def _run() -> float:
        with (folder / "said").open("w") as said:
            process = subprocess.Popen(
                [*TRAIN, *words], cwd=folder, env=environment, stdout=said, stderr=said
            )
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise InputError(f"{' '.join(words)} failed:\n{(folder / 'said').read_text()}")
        peaks[name] = used.ru_maxrss * 1024
        return used.ru_utime + used.ru_stime

    return _run
