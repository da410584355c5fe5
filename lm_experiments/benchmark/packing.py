"""A sweep of twelve tiny runs side by side, compared with one after another."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from lm_experiments.benchmark.rounds import TRAIN, Contestant, Measurement, measure
from lm_experiments.errors import InputError
from lm_experiments.launch.memory import cores

TITLE = "Sweeps of twelve tiny runs, from the command to the table."
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
    "runs_from=[]",
)
STEPS = "trainer.max_steps=150"
ALONE = "resources.at_once=1"
BESIDE = "resources.at_once=auto"


def packing(rounds: int) -> Measurement:
    """Time the sweep one run after another on all cores, and one on each core.

    Raises:
        InputError: if a sweep fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        timed = _Sweeps(Path(folder))
        contestants = {
            f"one after another, {cores()} threads": timed.contestant(ALONE),
            f"{cores()} at once, 1 thread each": timed.contestant(BESIDE),
        }
        timings = measure(contestants, rounds)
        return Measurement(TITLE, timings, rounds, notes=[timed.overhead()])


class _Sweeps:
    """Runs sweeps, each in its own folder, and records the overhead of those side by side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.numbers = itertools.count()
        self.beside: list[tuple[float, float]] = []

    def contestant(self, word: str) -> Contestant:
        """Return a contestant that sweeps with one more override."""

        def _run() -> float:
            name = f"sweep-{next(self.numbers)}"
            start = time.perf_counter()
            self._type(word, f"name={name}")
            seconds = time.perf_counter() - start
            trained = self._training_seconds(name)
            if word == BESIDE:
                self.beside.append((seconds, trained / cores()))
            return seconds

        return _run

    def overhead(self) -> str:
        """Return a sentence on the overhead of the fastest sweep side by side."""
        seconds, runs = min(self.beside)
        return (
            f"side by side, the fastest sweep: {seconds:.1f} s, of which training divided by "
            f"{cores()} cores is {runs:.1f} s; the rest is the start of Python, plan and table."
        )

    def _type(self, *words: str) -> None:
        command = [*TRAIN, *WORDS, STEPS, *words]
        cache = {"LM_EXPERIMENTS_CACHE": str(self.folder / "cache")}
        done = subprocess.run(
            command, cwd=self.folder, env={**os.environ, **cache}, capture_output=True, text=True
        )
        if done.returncode:
            raise InputError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")

    def _training_seconds(self, name: str) -> float:
        """Return the training seconds of all runs of a sweep."""
        results = list((self.folder / "runs" / name).glob("*/result.json"))
        assert len(results) == RUNS, f"{len(results)} of {RUNS} runs ended"
        return sum(float(json.loads(path.read_text())["seconds"]) for path in results)
