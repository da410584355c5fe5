"""Twelve tiny runs side by side through Ray, against the same twelve one after another."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lm_experiments.benchmark.rounds import Contestant, Measurement, check_rounds, measure
from lm_experiments.errors import InputError
from lm_experiments.launch.memory import cores

TRAIN = Path(__file__).parents[2] / "scripts" / "train.py"
TITLE = "Sweeps of twelve tiny runs, whole: from the command to the table."
RUNS = 12
WORDS = (
    "-m",
    "placement=pre,post",
    "ffn=relu,swiglu",
    "position=rope,learned,sinusoidal",
    "logger=none",
    "trainer.accelerator=cpu",
    "trainer.val_every=1000",
    "data.val_fraction=0.01",
)
STEPS = "trainer.max_steps=150"


def sweep(rounds: int) -> Measurement:
    """Time the sweep one after another with all cores, and through Ray with one each.

    Raises:
        InputError: where a sweep fails.
    """
    check_rounds(rounds)
    with tempfile.TemporaryDirectory() as folder:
        timed = _Sweeps(Path(folder))
        contestants = {
            f"one after another, {cores()} threads": timed.contestant(f"trainer.threads={cores()}"),
            f"{cores()} at once, 1 thread each": timed.contestant("hydra/launcher=ray"),
        }
        timings = measure(contestants, rounds)
        return Measurement(TITLE, timings, rounds, notes=[timed.overhead()])


class _Sweeps:
    """Runs sweeps, each in a folder of its own, and keeps what Ray's cost beside their runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers = itertools.count()
        self.beside: list[tuple[float, float]] = []

    def contestant(self, word: str) -> Contestant:
        """Return the contestant that sweeps with one more word."""

        def run() -> float:
            name = f"sweep-{next(self.numbers)}"
            start = time.perf_counter()
            self._type(word, f"name={name}")
            seconds = time.perf_counter() - start
            if word.startswith("hydra/launcher"):
                self.beside.append((seconds, self._runs(name) / cores()))
            return seconds

        return run

    def overhead(self) -> str:
        """Return what the fastest sweep through Ray took beside its runs, of which all are told."""
        seconds, runs = min(self.beside)
        return (
            f"through Ray, the fastest sweep: {seconds:.1f} s, of which the seconds of training, "
            f"divided by {cores()}, are {runs:.1f} s; the rest is the start of Python, of Ray and "
            "of its workers, the plan and the table."
        )

    def _type(self, *words: str) -> None:
        command = [sys.executable, str(TRAIN), *WORDS, STEPS, *words]
        cache = {"LM_EXPERIMENTS_CACHE": str(self.folder / "cache")}
        done = subprocess.run(
            command, cwd=self.folder, env={**os.environ, **cache}, capture_output=True, text=True
        )
        if done.returncode:
            raise InputError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")

    def _runs(self, name: str) -> float:
        """Return the seconds that the runs of a sweep spent in training."""
        results = list((self.folder / "runs" / name).glob("*/result.json"))
        assert len(results) == RUNS, f"{len(results)} of {RUNS} runs ended"
        return sum(float(json.loads(path.read_text())["seconds"]) for path in results)
