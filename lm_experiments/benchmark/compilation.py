"""Compiling the model: what it takes, and after how many steps it has paid."""

from __future__ import annotations

import time
from functools import partial

import torch

from lm_experiments.benchmark.peers import BATCH_SIZE, SHAPE, random_batch
from lm_experiments.benchmark.rounds import (
    Measurement,
    device,
    measure,
    precision,
    synchronise,
    timed,
)
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.training.allocation import keep_freed_memory
from lm_experiments.training.devices import best_micro_batch


def compilation(rounds: int) -> Measurement:
    """Time steps of a compiled and an uncompiled model that take turns."""
    return compare(SHAPE, BATCH_SIZE, rounds)


def compare(shape: ModelConfig, batch_size: int, rounds: int) -> Measurement:
    """Time eager and compiled steps of one shape; see `compilation`."""
    keep_freed_memory()
    micro = best_micro_batch(shape, batch_size, device().type, precision())
    batch = [part.to(device()) for part in random_batch(shape, batch_size)]
    steps = {}
    for name in ("eager", "compiled"):
        model = build_model(shape, seed=0).to(device())
        steps[name] = PlainStep(model, model.loss, micro)
        if name == "compiled":
            torch.compiler.reset()
            model.compile()
    seconds = {name: _first(step, batch) for name, step in steps.items()}
    timings = measure({name: timed(partial(s, *batch)) for name, s in steps.items()}, rounds)
    eager, compiled = (timing.seconds for timing in timings)
    took = seconds["compiled"] - compiled
    title = f"A training step of {batch[0].numel():,} tokens, model size {shape.d_model}."
    notes = [_verdict(took, eager - compiled)]
    return Measurement(title, timings, rounds, batch[0].numel(), notes)


def _first(step: PlainStep, batch: list[torch.Tensor]) -> float:
    start = time.perf_counter()
    step(*batch)
    synchronise()
    return time.perf_counter() - start


def _verdict(took: float, saved: float) -> str:
    if saved <= 0:
        return f"Compiling took {took:.1f} s, and no number of steps pays it back."
    return f"Compiling took {took:.1f} s, which {took / saved:,.0f} steps pay back."
