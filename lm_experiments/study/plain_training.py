"""A few steps of a run without its directory, loggers and callbacks, to look at."""

from __future__ import annotations

import torch
from torch import Tensor

from lm_experiments.data import IGNORE_INDEX
from lm_experiments.model import build_model
from lm_experiments.study.plan import corpus_of
from lm_experiments.training.config import RunConfig
from lm_experiments.training.devices import find_device
from lm_experiments.training.optimizers import clip_gradients


class PlainTraining:
    """The model, batches and optimizer of a run, in float32, at the peak of its learning rate.

    Args:
        config: with its corpus completed, see `plan.planned`.
        device: a kind of device, such as cpu.
    """

    def __init__(self, config: RunConfig, device: str = "cpu") -> None:
        self.config = config
        self.device = device
        self.micro_batch_size = find_device(config).micro_batch_size
        self.model = build_model(config.model, config.seed).to(device)
        self.optimizer = config.resolved_optimizer.build(self.model)
        for group in self.optimizer.param_groups:
            group["lr"] = config.optimizer.lr * group.get("lr_scale", 1.0)
        self._batches = corpus_of(config).train.training(
            config.model.context_length, config.data.batch_size, config.seed
        )
        # Components may draw, as dropout does here.
        torch.manual_seed(config.seed)

    def batch(self, number: int, sequences: int | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a step's batch, or of its first sequences."""
        inputs, targets, *_ = self._batches.batch(number)
        return inputs[:sequences].to(self.device), targets[:sequences].to(self.device)

    def backward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the gradients; return the mean loss in nats per token, a scalar."""
        total = torch.zeros((), device=self.device)
        counted = int((targets != IGNORE_INDEX).sum())
        for start in range(0, len(inputs), self.micro_batch_size):
            part = slice(start, start + self.micro_batch_size)
            loss = self.model.loss(inputs[part], targets[part], self.config.model.z_loss)
            (loss / counted).backward()  # type: ignore[no-untyped-call]
            total += loss.detach() / counted
        return total

    def update(self) -> Tensor:
        """Clip the gradients and step; return their norm before."""
        norm = clip_gradients(self.model.parameters(), self.config.optimizer.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm
