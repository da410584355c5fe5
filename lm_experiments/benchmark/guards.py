"""The cost of safety: checkpoints and finiteness checks of the loss, relative to a step."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import torch

from lm_experiments.benchmark.rounds import Measurement, summarise, take_turns, timed
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.training.checkpoints import write_whole
from lm_experiments.training.config import TrainerConfig

# The dimensions of size=small and the batch size of data=kjv.
SMALL = ModelConfig(d_model=320, n_layers=6, n_heads=5, context_length=256, d_ff=1280)
SEQUENCES = 8
STEP, GUARDED = "a step", "a step with its share of guards"
CHECK, SAVE = "check", "save"


def guards(rounds: int) -> Measurement:
    """Time a step, a check of its loss, and a checkpoint.

    A step bears one checkpoint per ``trainer.checkpoint_every`` steps and one check per
    ``trainer.log_every`` steps, at their defaults.
    """
    model = build_model(SMALL, seed=0)
    step = PlainStep(model, model.loss, SEQUENCES // 2)
    tokens = torch.randint(SMALL.vocab_size, (2, SEQUENCES, SMALL.context_length))
    loss = step(tokens[0], tokens[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step-00000001.ckpt"
        contestants = {
            STEP: timed(lambda: step(tokens[0], tokens[1])),
            CHECK: timed(lambda: math.isfinite(loss.item())),
            SAVE: timed(lambda: write_whole(step.checkpoint(), path)),
        }
        seconds = take_turns(contestants, rounds)
    share = (
        seconds[SAVE] / TrainerConfig.checkpoint_every + seconds[CHECK] / TrainerConfig.log_every
    )
    size = sum(p.numel() for p in model.parameters())
    save = float(np.median(seconds[SAVE]))
    return Measurement(
        f"One step of {tokens[0].numel():,} tokens, {size:,} parameters, float32.",
        summarise({STEP: seconds[STEP], GUARDED: seconds[STEP] + share}),
        rounds,
        tokens[0].numel(),
        [f"A checkpoint takes {save:.2f} s, once in {TrainerConfig.checkpoint_every} steps."],
    )
