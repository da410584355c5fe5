"""The cost of safety: checkpoints and finiteness checks of the loss, relative to a step."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import torch

from lm_experiments.benchmark.rounds import Measurement, summarise
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.training.checkpoints import write_whole
from lm_experiments.training.config import TrainerConfig

# The dimensions of size=small and the batch size of data=kjv.
SMALL = ModelConfig(d_model=320, n_layers=6, n_heads=5, context_length=256, d_ff=1280)
SEQUENCES = 8
STEP, GUARDED = "a step", "a step with its share of guards"


def guards(rounds: int) -> Measurement:
    """Time a step, a check of its loss, and a checkpoint.

    A step bears one checkpoint per ``trainer.checkpoint_every`` steps and one check per
    ``trainer.log_every`` steps, at their defaults.
    """
    seconds: dict[str, list[float]] = {STEP: [], GUARDED: []}
    saves: list[float] = []
    model = build_model(SMALL, seed=0)
    step = PlainStep(model, model.loss, SEQUENCES // 2)
    tokens = torch.randint(SMALL.vocab_size, (2, SEQUENCES, SMALL.context_length))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds + 1):
            plain, check, save = _times(step, tokens, Path(folder) / "step-00000001.ckpt")
            share = save / TrainerConfig.checkpoint_every + check / TrainerConfig.log_every
            seconds[STEP].append(plain)
            seconds[GUARDED].append(plain + share)
            saves.append(save)
    size = sum(p.numel() for p in model.parameters())
    return Measurement(
        f"One step of {tokens[0].numel():,} tokens, {size:,} parameters, float32.",
        summarise({name: values[1:] for name, values in seconds.items()}),
        rounds,
        tokens[0].numel(),
        [f"A checkpoint takes {sorted(saves)[len(saves) // 2]:.2f} s, once in 500 steps."],
    )


def _times(step: PlainStep, tokens: torch.Tensor, path: Path) -> tuple[float, float, float]:
    """Return the seconds of a step, of the check of its loss, and of a checkpoint."""
    start = time.perf_counter()
    loss = step(tokens[0], tokens[1])
    stepped = time.perf_counter()
    finite = math.isfinite(loss.item())
    checked = time.perf_counter()
    state = {"state_dict": step.model.state_dict(), "optimizer_states": [step.state()]}
    write_whole(state if finite else {}, path)
    return stepped - start, checked - stepped, time.perf_counter() - checked
