"""The loss of a set: a sum of losses over a count of tokens, both exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from lm_experiments.data import IGNORE_INDEX


class TokenLoss(Metric):
    """Mean loss in nats per token over everything it was updated with.

    It keeps a float64 sum and a count, so the result depends neither on how the set was cut into
    batches nor on how many processes share it. A type cast of the model leaves it alone. MPS has
    no float64; there the metric stays on the CPU.
    """

    full_state_update = False
    loss_sum: Tensor
    tokens: Tensor

    def __init__(self) -> None:
        super().__init__()
        zero = torch.zeros((), dtype=torch.float64)
        self.add_state("loss_sum", default=zero, dist_reduce_fx="sum")
        self.add_state("tokens", default=torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, loss_sum: Tensor, tokens: Tensor | int) -> None:
        """Add a batch: its summed loss in nats, and how many tokens that covers."""
        self.loss_sum += loss_sum.to(self.loss_sum.device).double()
        self.tokens += tokens

    def _apply(
        self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ""
    ) -> TokenLoss:
        """Follow the model's device and not its type; torchmetrics misses ``.to(dtype)``."""

        def _move(tensor: Tensor) -> Tensor:
            device = fn(torch.empty(0, device=tensor.device)).device
            return tensor if device.type == "mps" else tensor.to(device)

        super()._apply(_move, exclude_state)
        return self

    def compute(self) -> Tensor:
        """Return the mean in float64; an empty set is a ValueError."""
        if int(self.tokens) == 0:
            raise ValueError("The evaluation set has no token that counts.")
        return self.loss_sum / self.tokens


class AnswerScore(Metric):
    """How many answers of problems are right, and how many problems have all of theirs right.

    An answer is a target that counts, and is right where it is the likeliest token. With all of a
    problem right, so is what greedy generation gives where its answers follow each other.
    """

    full_state_update = False
    right: Tensor
    answers: Tensor
    solved: Tensor
    problems: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("right", "answers", "solved", "problems"):
            zero = torch.zeros((), dtype=torch.int64)
            self.add_state(name, default=zero, dist_reduce_fx="sum")

    def update(self, right: Tensor, targets: Tensor) -> None:
        """Add a batch: whether each target is the likeliest, and the targets, (batch, length)."""
        counts = targets != IGNORE_INDEX
        asked = counts.any(1)
        self.right += (right & counts).sum()
        self.answers += counts.sum()
        self.solved += ((right | ~counts).all(1) & asked).sum()
        self.problems += asked.sum()

    def compute(self) -> dict[str, float]:
        """Return the share of answers that are right, and of problems that are."""
        return {
            "accuracy": int(self.right) / int(self.answers),
            "exact_match": int(self.solved) / int(self.problems),
        }


def perplexity(loss: float) -> float:
    """Return exp(loss), infinite where a float cannot hold it, nan for nan."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(loss: float, tokens: int, text_bytes: int) -> float:
    """Return the loss of ``tokens`` tokens as bits per byte of the text they encode."""
    return loss * tokens / (math.log(2) * text_bytes)
