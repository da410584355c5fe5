"""Whether two equal trainings end with the same bits, and what deterministic algorithms cost."""

from __future__ import annotations

import os
from functools import partial

import torch

from lm_experiments.benchmark.peers import BATCH_SIZE, SHAPE, random_batch
from lm_experiments.benchmark.rounds import Measurement, device, measure, timed
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.model import ModelConfig, build_model

STEPS = 10
NAMES = {False: "as it comes", True: "deterministic"}


def determinism(rounds: int) -> Measurement:
    """Time steps with and without ``trainer.deterministic``, after training twice with each."""
    # Read when the first product is computed, so before any.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return compare(SHAPE, BATCH_SIZE, rounds)


def compare(shape: ModelConfig, batch_size: int, rounds: int) -> Measurement:
    """Train twice each way and compare the weights bit for bit; see `determinism`."""
    batch = [part.to(device()) for part in random_batch(shape, batch_size)]
    notes, contestants = [], {}
    for on, name in NAMES.items():
        first, second = (_trained(shape, batch, on) for _ in range(2))
        pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
        bits = "the same" if all(torch.equal(one, other) for one, other in pairs) else "other"
        notes.append(f"{name}: two trainings of {STEPS} steps end with {bits} bits")
        contestants[name] = timed(partial(_step, first, batch, on))
    title = f"A training step of {batch[0].numel():,} tokens."
    return Measurement(title, measure(contestants, rounds), rounds, batch[0].numel(), notes)


def _trained(shape: ModelConfig, batch: list[torch.Tensor], on: bool) -> PlainStep:
    model = build_model(shape, seed=0).to(device())
    step = PlainStep(model, model.loss, len(batch[0]))
    for _ in range(STEPS):
        _step(step, batch, on)
    return step


def _step(step: PlainStep, batch: list[torch.Tensor], on: bool) -> None:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(on)
    try:
        step(*batch)
    finally:
        torch.use_deterministic_algorithms(before)
