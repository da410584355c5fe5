"""Training steps of the default run, with freed memory kept in the process and without."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack

import torch

from lm_experiments.benchmark.rounds import Contestant, Measurement, measure
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.training.allocation import keep_freed_memory

GIVEN_BACK, KEPT = "given back", "kept"
VOCABULARY, BATCH, MICRO_BATCH, STEPS = 2048, 16, 8, 5


def allocation(rounds: int) -> Measurement:
    """Time the same steps in two processes that take turns, the allocator set in one of them."""
    tokens = STEPS * BATCH * ModelConfig(vocab_size=VOCABULARY).context_length
    with ExitStack() as stack:
        contestants = {name: _worker(stack, name) for name in (GIVEN_BACK, KEPT)}
        timings = measure(contestants, rounds)
    title = f"CPU time of {STEPS} training steps, freed memory given back to the system or kept."
    return Measurement(title, timings, rounds, tokens)


def _worker(stack: ExitStack, name: str) -> Contestant:
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    asked, answers = process.stdin, process.stdout
    assert asked is not None and answers is not None

    def _run() -> float:
        print("steps", file=asked, flush=True)
        return float(answers.readline())

    return _run


def _serve(name: str) -> None:
    """Make the steps whenever a line is read, and print the seconds of computing they took."""
    if name == KEPT:
        keep_freed_memory()
    config = ModelConfig(vocab_size=VOCABULARY)
    model = build_model(config, seed=0)
    step = PlainStep(model, model.loss, MICRO_BATCH)
    windows = torch.arange(BATCH * (config.context_length + 1)).view(BATCH, -1) % VOCABULARY
    for _ in sys.stdin:
        start = time.process_time()
        for _ in range(STEPS):
            step(windows[:, :-1], windows[:, 1:])
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
