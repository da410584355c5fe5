"""The loss of the head, forward and backward: time and memory by vocabulary and by chunk."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack

import torch

from lm_experiments.benchmark.rounds import Measurement, device, measure
from lm_experiments.benchmark.worker import Work, worker
from lm_experiments.model import loss
from lm_experiments.training.allocation import keep_freed_memory

WIDTH, TOKENS = 256, 4096
# A vocabulary of 131,072 takes most of a minute a round on two cores.
VOCABULARIES = {"cpu": (1024, 4096, 32_768), "cuda": (4096, 32_768, 50_257, 131_072)}
CHUNKS = (None, 64, TOKENS)


def head(rounds: int) -> Measurement:
    """Time chunks as they are chosen, of 64 positions, and the whole batch at once."""
    return compare(VOCABULARIES[device().type], TOKENS, rounds)


def compare(vocabularies: tuple[int, ...], tokens: int, rounds: int) -> Measurement:
    """Time the loss of ``tokens`` positions for each vocabulary and chunk; see `head`."""
    timings = []
    for size in vocabularies:
        with ExitStack() as stack:
            workers = {
                _name(size, chunk): stack.enter_context(
                    worker(head_loss, vocabulary=size, tokens=tokens, chunk=chunk)
                )
                for chunk in CHUNKS
            }
            found = measure({name: one.wall for name, one in workers.items()}, rounds)
            timings += [
                dataclasses.replace(one, peak_bytes=workers[one.name].peak_bytes) for one in found
            ]
    title = f"The loss of {tokens:,} positions of width {WIDTH}, forward and backward, float32."
    return Measurement(title, timings, rounds, tokens, reference="the first of its vocabulary")


def head_loss(vocabulary: int, tokens: int, chunk: int | None) -> Work:
    """Return the loss of the head and its gradient, in chunks of so many positions."""
    keep_freed_memory()
    if chunk is not None:
        loss.chunk_length = lambda vocab_size, device_type: chunk
    place, generator = device(), torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, WIDTH, generator=generator).to(place).requires_grad_()
    weight = torch.randn(vocabulary, WIDTH, generator=generator).to(place).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,), generator=generator).to(place)

    def _work() -> None:
        hidden.grad = weight.grad = None
        loss.sum_of_losses(hidden, weight, targets).backward()  # type: ignore[no-untyped-call]

    return _work


def _name(vocabulary: int, chunk: int | None) -> str:
    positions = loss.chunk_length(vocabulary, device().type) if chunk is None else chunk
    chosen = " (chosen)" if chunk is None else ""
    return f"vocabulary {vocabulary:,}, chunks of {positions:,}{chosen}"
