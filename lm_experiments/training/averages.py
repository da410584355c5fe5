"""An average of the weights of all steps, kept beside them; training does not see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import nn

from lm_experiments.training.checkpoints import AVERAGE
from lm_experiments.training.config import TrainerConfig


class AverageWeights(Callback):
    """Averages the weights after each step, in float32 on their device, waiting for nothing."""

    def __init__(self, config: TrainerConfig) -> None:
        self.config = config
        self.weights: dict[str, torch.Tensor] = {}

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Bring what a checkpoint had to the device of the model."""
        self.weights = {name: w.to(pl_module.device) for name, w in self.weights.items()}

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        """Move the average towards the weights of this step."""
        share = share_of(trainer.global_step, self.config)
        if share is None:
            return
        newest = {name: p.detach().float() for name, p in pl_module.model.named_parameters()}
        if not self.weights:
            self.weights = {name: weight.clone() for name, weight in newest.items()}
        torch._foreach_lerp_(list(self.weights.values()), list(newest.values()), share)

    @property
    def state_key(self) -> str:
        """The name of the average among what a checkpoint has of callbacks."""
        return AVERAGE

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return dict(self.weights)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the average of a checkpoint."""
        self.weights = state_dict

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Give a model the average meanwhile; its own weights come back bit for bit."""
        last = {name: p.detach().clone() for name, p in model.named_parameters()}
        model.load_state_dict(self.weights, strict=False)
        try:
            yield
        finally:
            model.load_state_dict(last, strict=False)


def share_of(step: int, config: TrainerConfig) -> float | None:
    """Return by how much a step moves the average towards its weights, None for not at all.

    With ``ema`` it is ``1 - min(average_decay, (n - 1) / (n + 8))`` at step n, so that the first
    weights are soon forgotten. With ``swa`` it is one over the number of averaged steps.
    """
    if config.average == "ema":
        return 1 - min(config.average_decay, (step - 1) / (step + 8))
    taken = step - int(config.average_start * config.max_steps)
    return 1 / taken if taken > 0 else None
