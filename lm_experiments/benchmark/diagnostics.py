"""A run with diagnostics: the time of its steps, with what looking inside adds and without."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from lm_experiments.benchmark.lightning_run import BLOCK, default_run
from lm_experiments.benchmark.rounds import Measurement, summarise
from lm_experiments.rundir.identity import Identity
from lm_experiments.training.batches import Batches
from lm_experiments.training.config import RunConfig
from lm_experiments.training.diagnostics import Diagnostics
from lm_experiments.training.fit import Run

WITHOUT, WITH = "without", "diagnostics.every=auto"


def diagnostics(rounds: int) -> Measurement:
    """Time the default run on the CPU, a log interval at a time; one row falls in each."""
    with tempfile.TemporaryDirectory() as folder:
        return compare(default_run(rounds, Path(folder) / "cache"), Path(folder))


def compare(config: RunConfig, run_dir: Path) -> Measurement:
    """Train ``config`` in ``run_dir`` with diagnostics, whose time is taken within each interval.

    With and without are the same steps, so that a busy machine slows both alike.
    """
    run = _WatchedRun(run_dir, config, Identity("", ""))
    run.train()
    whole, looking = run.clock.whole[1:], run.clock.looking[1:]
    without = [a - b for a, b in zip(whole, looking, strict=True)]
    batch = config.tokens_per_step
    title = f"{BLOCK} training steps of {batch:,} tokens, model size {config.model.d_model}."
    timings = summarise({WITHOUT: without, WITH: whole})
    return Measurement(title, timings, len(whole), BLOCK * batch)


class _Clock(Callback):
    """Times the log intervals of a run, and in each the time spent on looking inside."""

    def __init__(self) -> None:
        self.whole: list[float] = []
        self.looking: list[float] = []
        self._since = 0.0
        self._spent = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock."""
        self._since = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        """Close the interval, where it ends."""
        if trainer.global_step % BLOCK == 0:
            now = time.perf_counter()
            self.whole.append(now - self._since)
            self.looking.append(self._spent)
            self._since, self._spent = now, 0.0

    def timed(self, call: Callable[..., None]) -> Callable[..., None]:
        """Return the call, its time counted as spent on looking."""

        def _run(*args: Any, **keywords: Any) -> None:
            start = time.perf_counter()
            call(*args, **keywords)
            self._spent += time.perf_counter() - start

        return _run


class _WatchedRun(Run):
    """A normal run with diagnostics, whose hooks are timed."""

    clock: _Clock

    def _build_trainer(self, batches: Batches) -> Trainer:
        trainer = super()._build_trainer(batches)
        self.clock = _Clock()
        watching: Any = Diagnostics(self.run_dir, BLOCK)
        for hook in ("on_before_optimizer_step", "on_train_batch_end"):
            setattr(watching, hook, self.clock.timed(getattr(watching, hook)))
        trainer.callbacks += [watching, self.clock]  # type: ignore[attr-defined]
        return trainer
