"""A Lightning run compared with a plain loop: the overhead of Lightning, logging and callbacks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from lm_experiments.benchmark.rounds import Measurement, summarise
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.data import PreparedData, prepare
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.registry import choose
from lm_experiments.rundir.identity import Identity
from lm_experiments.training.batches import Batches
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig
from lm_experiments.training.devices import find_device
from lm_experiments.training.fit import Run
from lm_experiments.training.logger_config import NoLogger
from lm_experiments.training.optimizers import AdamW
from lm_experiments.training.schedules import Constant

BARE, LIGHTNING = "bare loop", "Lightning run"
VOCABULARY = 2048
# Steps per round: one log interval, so that each round writes one row of metrics.
BLOCK = 10


def lightning(rounds: int) -> Measurement:
    """Time the default run on the CPU against a plain loop over the same model and batches.

    Validation and checkpoints are not timed, since both loops would need them.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = default_run(rounds, Path(folder) / "cache")
        return compare(config, Path(folder))


def default_run(rounds: int, cache_dir: Path) -> RunConfig:
    """Return the default run with the steps of ``rounds`` rounds and one warm-up round."""
    steps = (rounds + 1) * BLOCK
    trainer = TrainerConfig(
        max_steps=steps,
        accelerator="cpu",
        val_every=steps,
        log_every=BLOCK,
        checkpoint_every=steps,
    )
    return run_config(trainer, cache_dir)


def run_config(trainer: TrainerConfig, cache_dir: Path) -> RunConfig:
    """Return the configuration of the default run on the CPU, without W&B, with another trainer."""
    return RunConfig(
        model=ModelConfig(vocab_size=VOCABULARY),
        data=BatchConfig(val_fraction=0.01),
        tokenizer=choose("tokenizer", "bpe", {"vocab_size": VOCABULARY}),
        optimizer=AdamW(),
        schedule=Constant(),
        trainer=trainer,
        logger=NoLogger(),
        cache_dir=str(cache_dir),
    )


def compare(config: RunConfig, run_dir: Path) -> Measurement:
    """Train ``config`` in ``run_dir``, with the plain step after each training step."""
    data = prepare(config.data, config.tokenizer, Path(config.cache_dir))
    rounds = _Rounds(_bare_steps(config, data))
    _TimedRun(run_dir, config, rounds).train()
    seconds = {BARE: rounds.bare[1:], LIGHTNING: rounds.lightning[1:]}
    batch = config.tokens_per_step
    title = f"{BLOCK} training steps of {batch:,} tokens, model size {config.model.d_model}."
    return Measurement(title, summarise(seconds), len(rounds.bare) - 1, BLOCK * batch)


class _Rounds(Callback):
    """Times each training step, and after it the same step in plain PyTorch.

    Alternating step by step makes short slowdowns of the machine affect both alike.
    """

    def __init__(self, bare_step: Callable[[int], object]) -> None:
        self.bare_step = bare_step
        self.lightning: list[float] = []
        self.bare: list[float] = []
        self._since = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock."""
        self._since = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        """Add the times of this step and of the plain one to the round."""
        start = time.perf_counter()
        self.bare_step(trainer.global_step - 1)
        end = time.perf_counter()
        if (trainer.global_step - 1) % BLOCK == 0:
            self.lightning.append(0.0)
            self.bare.append(0.0)
        self.lightning[-1] += start - self._since
        self.bare[-1] += end - start
        self._since = time.perf_counter()


class _TimedRun(Run):
    """A normal run with one more callback after the others."""

    def __init__(self, run_dir: Path, config: RunConfig, rounds: _Rounds) -> None:
        super().__init__(run_dir, config, identity=Identity("", ""))
        self.rounds = rounds

    def _build_trainer(self, batches: Batches) -> Trainer:
        trainer = super()._build_trainer(batches)
        trainer.callbacks.append(self.rounds)  # type: ignore[attr-defined]
        return trainer


def _bare_steps(config: RunConfig, data: PreparedData) -> Callable[[int], object]:
    """Return a function that does the plain step of a step number, including its batch."""
    model = build_model(config.model, config.seed)
    step = PlainStep(model, model.loss, find_device(config).micro_batch_size, config.optimizer)
    batches = data.train.training(config.model.context_length, config.data.batch_size, config.seed)
    return lambda number: step(*batches.batch(number))
