"""One optimizer step in plain PyTorch, without Lightning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lm_experiments.training.optimizers import AdamW, Optimizer, clip_gradients

SummedLoss = Callable[[Tensor, Tensor], Tensor]
"""Maps inputs and targets (batch, length) to the sum of the losses of all targets, in nats."""


@dataclass
class PlainStep:
    """Forward, backward, gradient clipping and update of any model, with the optimizer of a run.

    Attributes:
        loss: the model's summed loss.
        micro_batch_size: sequences per forward pass.
    """

    model: nn.Module
    loss: SummedLoss
    micro_batch_size: int
    optimizer: Optimizer = field(default_factory=AdamW)

    def __post_init__(self) -> None:
        self._optimizer = self.optimizer.build(self.model)

    def checkpoint(self) -> dict[str, Any]:
        """Return the weights and the optimizer state as in a checkpoint."""
        optimizer = self._optimizer.state_dict()
        return {"state_dict": self.model.state_dict(), "optimizer_states": [optimizer]}

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Do one step; return the mean loss per token before it, a scalar."""
        total = torch.zeros((), device=inputs.device)
        for start in range(0, len(inputs), self.micro_batch_size):
            part = slice(start, start + self.micro_batch_size)
            # As runs do on a GPU.
            with torch.autocast("cuda", torch.bfloat16, enabled=inputs.is_cuda):
                loss = self.loss(inputs[part], targets[part]) / targets.numel()
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        clip_gradients(self.model.parameters(), self.optimizer.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return total
