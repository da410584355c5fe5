"""Training steps of the default run, with freed memory kept in the process and without."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from lm_experiments.benchmark.rounds import Measurement, measure
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.benchmark.worker import Work, worker
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.training.allocation import keep_freed_memory

VOCABULARY, BATCH, STEPS = 2048, 16, 5


def allocation(rounds: int) -> Measurement:
    """Time the same steps in two processes that take turns, the allocator set in one of them."""
    tokens = STEPS * BATCH * ModelConfig(vocab_size=VOCABULARY).context_length
    with ExitStack() as stack:
        contestants = {
            name: stack.enter_context(worker(default_steps, kept=name == "kept")).work
            for name in ("given back", "kept")
        }
        timings = measure(contestants, rounds)
    title = f"CPU time of {STEPS} training steps, freed memory given back to the system or kept."
    return Measurement(title, timings, rounds, tokens)


def default_steps(kept: bool) -> Work:
    """Return steps of the default run on the CPU, in a process that keeps its memory or not."""
    if kept:
        keep_freed_memory()
    config = ModelConfig(vocab_size=VOCABULARY)
    model = build_model(config, seed=0)
    step = PlainStep(model, model.loss, BATCH)
    windows = torch.arange(BATCH * (config.context_length + 1)).view(BATCH, -1) % VOCABULARY
    return lambda: [step(windows[:, :-1], windows[:, 1:]) for _ in range(STEPS)]
