"""A whole Lightning run against the bare step: what Lightning, logging and callbacks cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from lm_experiments.benchmark.rounds import Report, check_rounds, summarise
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.data import PreparedData, TrainingBatches, prepare
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.registry import choose
from lm_experiments.rundir.identity import Identity
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig
from lm_experiments.training.devices import find_device
from lm_experiments.training.fit import Run
from lm_experiments.training.logger_config import NoLogger
from lm_experiments.training.optimizers import AdamW
from lm_experiments.training.schedules import Constant

BARE, LIGHTNING = "bare loop", "Lightning run"
# Steps in a round: one interval of the log, so that each round writes one row.
BLOCK = 10
VOCABULARY = 2048


def lightning(rounds: int) -> Report:
    """Time the default run on the CPU against the same model and batches in a bare loop.

    Validation and checkpoints are not timed: they are work that either loop would have to do.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = default_run(rounds, Path(folder) / "cache")
        return compare(config, Path(folder))


def default_run(rounds: int, cache_dir: Path) -> RunConfig:
    """Return the default run without W&B, long enough for so many rounds and one to warm up."""
    check_rounds(rounds)
    steps = (rounds + 1) * BLOCK
    return RunConfig(
        model=ModelConfig(vocab_size=VOCABULARY),
        data=BatchConfig(val_fraction=0.01),
        tokenizer=choose("tokenizer", "bpe", {"vocab_size": VOCABULARY}),
        optimizer=AdamW(),
        schedule=Constant(),
        trainer=TrainerConfig(
            max_steps=steps,
            accelerator="cpu",
            val_every=steps,
            log_every=BLOCK,
            checkpoint_every=steps,
        ),
        logger=NoLogger(),
        cache_dir=str(cache_dir),
    )


def compare(config: RunConfig, run_dir: Path) -> Report:
    """Train ``config`` in ``run_dir``, each step followed by the same one bare."""
    data = prepare(config.data, config.tokenizer, Path(config.cache_dir))
    rounds = _Rounds(_bare_steps(config, data))
    _TimedRun(run_dir, config, rounds).train()
    seconds = {BARE: rounds.bare[1:], LIGHTNING: rounds.lightning[1:]}
    batch = config.data.batch_size * config.model.context_length
    title = f"{BLOCK} training steps of {batch:,} tokens, model size {config.model.d_model}."
    return Report(title, summarise(seconds), len(rounds.bare) - 1, BLOCK * batch)


class _Rounds(Callback):
    """Stops the clock after each step, and times the same step bare before the next begins.

    What slows the machine comes and goes within seconds, so turns are as short as they can be.
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
        """Add this step to the round, and the bare one."""
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
    """A run, exactly as it is trained otherwise, with one more callback behind the others."""

    def __init__(self, run_dir: Path, config: RunConfig, rounds: _Rounds) -> None:
        super().__init__(run_dir, config, identity=Identity("", ""))
        self.rounds = rounds

    def _build_trainer(self) -> Trainer:
        trainer = super()._build_trainer()
        trainer.callbacks.append(self.rounds)  # type: ignore[attr-defined]
        return trainer


def _bare_steps(config: RunConfig, data: PreparedData) -> Callable[[int], object]:
    """Return what makes the bare step number n: its batch, then the step."""
    model = build_model(config.model, config.seed)
    step = PlainStep(model, model.loss, find_device(config).micro_batch_size, config.optimizer)
    batches = TrainingBatches(
        data.train.tokens, config.model.context_length, config.data.batch_size, config.seed
    )
    return lambda number: step(*batches[number])
