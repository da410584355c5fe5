"""The loss of a model over a text, at any context length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lm_experiments.data import IGNORE_INDEX, EvaluationBatches
from lm_experiments.evaluation.texts import EncodedText
from lm_experiments.model import Transformer

# Tokens per forward pass; on a CPU, as many as fit its cache.
BATCH_TOKENS = {"cpu": 1 << 12}
BATCH_TOKENS_ELSEWHERE = 1 << 16


@dataclass(frozen=True)
class Score:
    """The loss over a text: ``loss`` is the mean in nats over ``tokens`` targets.

    Attributes:
        sums: nats over the targets at each position of a window, float64 of (context_length,).
        counts: how many targets these are, int64 of (context_length,).
    """

    context_length: int
    loss: float
    tokens: int
    bytes: int | None
    sums: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def perplexity(self) -> float:
        """exp(loss), or infinity on overflow."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    @property
    def bits_per_byte(self) -> float | None:
        """The loss of the whole text in bits, divided by its bytes; None if those are unknown."""
        if self.bytes is None:
            return None
        return self.loss * self.tokens / (math.log(2) * self.bytes)

    def between(self, ends: Sequence[int]) -> tuple[list[float], list[int]]:
        """Return the mean loss and the count of targets of the positions up to each of ``ends``.

        A range starts where the one before it ends, the first at 0. Those without targets are nan.
        """
        starts = [0, *ends[:-1]]
        sums = np.add.reduceat(self.sums, starts)
        counts = np.add.reduceat(self.counts, starts)
        with np.errstate(invalid="ignore"):
            means: list[float] = (sums / counts).tolist()
        return means, counts.tolist()


@torch.inference_mode()
def score(
    model: Transformer, text: EncodedText, context_length: int, batch_size: int | None = None
) -> Score:
    """Return the mean loss over all tokens of a text but the first.

    The text is cut into non-overlapping windows of ``context_length`` tokens. The result does not
    depend on the batch size, but for its last bits.

    Args:
        model: in evaluation mode, on any device. Its position encoding is extended if the context
            is longer than the trained one, see `Position.extend`.
        text: at least two tokens.
        context_length: at least 1.
        batch_size: windows per forward pass; None for as many as suit the device.

    Raises:
        ValueError: if the text is too short, or positions cannot be extended.
    """
    model.position.extend(context_length)
    device = model.embedding.weight.device
    size = BATCH_TOKENS.get(device.type, BATCH_TOKENS_ELSEWHERE)
    windows = batch_size or max(1, size // context_length)
    batches = EvaluationBatches(text.tokens, context_length, windows)
    total = 0.0
    sums = torch.zeros(context_length, dtype=torch.float64)
    counts = torch.zeros(context_length, dtype=torch.int64)
    for inputs, targets in batches:
        losses, loss = model.losses(inputs.to(device), targets.to(device))
        total += loss.item()
        sums += losses.sum(0).cpu().double()
        counts += (targets != IGNORE_INDEX).sum(0)
    count = int(counts.sum())
    return Score(context_length, total / count, count, text.bytes, sums.numpy(), counts.numpy())
