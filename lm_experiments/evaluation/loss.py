"""The loss of a model over a text, at any context length."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from lm_experiments.data import IGNORE_INDEX, EvaluationBatches
from lm_experiments.evaluation.texts import EncodedText
from lm_experiments.model import Transformer

# Tokens per forward pass; on a CPU, as many as fit its cache.
BATCH_TOKENS = {"cpu": 1 << 12}
BATCH_TOKENS_ELSEWHERE = 1 << 16


@dataclass(frozen=True)
class Score:
    """The loss over a text: ``loss`` is the mean in nats over ``tokens`` targets."""

    context_length: int
    loss: float
    tokens: int
    bytes: int | None

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
    total, count = 0.0, 0
    for inputs, targets in batches:
        total += model.loss(inputs.to(device), targets.to(device)).item()
        count += int((targets != IGNORE_INDEX).sum())
    return Score(context_length, total / count, count, text.bytes)
