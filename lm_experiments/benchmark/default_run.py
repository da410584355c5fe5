"""The default training run on the CPU, without W&B, for benchmarks of whole runs."""

from __future__ import annotations

from pathlib import Path

from lm_experiments.model import ModelConfig
from lm_experiments.registry import choose
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig
from lm_experiments.training.logger_config import NoLogger
from lm_experiments.training.optimizers import AdamW
from lm_experiments.training.schedules import Constant

VOCABULARY = 2048


def run_config(trainer: TrainerConfig, cache_dir: Path) -> RunConfig:
    """Return the configuration of the default run with another trainer."""
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
