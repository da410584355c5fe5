"""What validation takes of the default run."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from pathlib import Path

import torch

from lm_experiments.benchmark.lightning_run import run_config
from lm_experiments.benchmark.rounds import Measurement, device, measure, timed
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.data import prepare
from lm_experiments.model import build_model
from lm_experiments.training.allocation import keep_freed_memory
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig
from lm_experiments.training.devices import find_device

STEP, PASS = "ten training steps", "a pass over the validation set"
STEPS = 10


def evaluation(rounds: int) -> Measurement:
    """Time training steps and passes over the validation set, of the default run."""
    with tempfile.TemporaryDirectory() as folder:
        config = run_config(TrainerConfig(), Path(folder))
        return compare(dataclasses.replace(config, data=BatchConfig()), rounds)


def compare(config: RunConfig, rounds: int) -> Measurement:
    """Time both for any run, and say what share of the run validation is."""
    keep_freed_memory()
    data, place = prepare(config.data, config.tokenizer, Path(config.cache_dir)), device()
    model = build_model(config.model, config.seed).to(place)
    step = PlainStep(model, model.loss, find_device(config).micro_batch_size, config.optimizer)
    length = config.model.context_length
    batches = data.train.training(length, config.data.batch_size, config.seed)
    held_out = data.val.once(length, config.data.eval_batch_size)
    batch = [part.to(place) for part in batches.batch(0)]

    @torch.no_grad()
    def _validate() -> None:
        for number in range(len(held_out)):
            model.losses(*(part.to(place) for part in held_out[number]))

    train = timed(lambda: [step(*batch) for _ in range(STEPS)])
    timings = measure({STEP: train, PASS: timed(_validate)}, rounds)
    return Measurement(
        f"The default run, whose validation set has {data.val.positions + 1:,} tokens.",
        timings,
        rounds,
        notes=[_share(config.trainer, *(timing.seconds for timing in timings))],
    )


def _share(trainer: TrainerConfig, steps: float, validation: float) -> str:
    passes = math.ceil(trainer.max_steps / trainer.val_every)
    training = trainer.max_steps * steps / STEPS
    share = passes * validation / (passes * validation + training)
    return (
        f"{passes} passes in {trainer.max_steps} steps (trainer.val_every={trainer.val_every}) "
        f"are {100 * share:.0f} % of the run's time."
    )
