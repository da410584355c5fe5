"""Optimizers, and the one rule by which parameters are decayed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

# Where torch has a kernel that updates all parameters at once.
FUSED_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Optimizer:
    """What every optimizer is configured with.

    Attributes:
        lr: the peak learning rate; the schedule scales it.
        weight_decay: for matrices alone, see `parameter_groups`.
        clip_norm: the largest global gradient norm; 0 turns clipping off.
    """

    name: ClassVar[str]

    lr: float = 3e-3
    weight_decay: float = 0.1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"optimizer.lr={self.lr:g} must be positive, for example 0.003.")
        for key in ("weight_decay", "clip_norm"):
            if getattr(self, key) < 0:
                raise ValueError(f"optimizer.{key}={getattr(self, key):g} must be 0 or more.")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the torch optimizer over the model's parameters."""
        raise NotImplementedError


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    name: ClassVar[str] = "adamw"
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8

    def build(self, model: nn.Module) -> torch.optim.AdamW:
        """Return AdamW, with the kernel that updates all parameters at once where there is one."""
        groups = parameter_groups(model, self.weight_decay)
        device = groups[0]["params"][0].device.type
        return torch.optim.AdamW(
            groups,
            lr=self.lr,
            betas=(self.beta1, self.beta2),
            eps=self.eps,
            fused=device in FUSED_DEVICES,
        )


OPTIMIZERS: dict[str, type[Optimizer]] = {cls.name: cls for cls in (AdamW,)}


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split the parameters: matrices are decayed; gains, biases and other vectors never.

    Each parameter is in exactly one group, a shared one once. The rule is the same in all arms.
    """
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def clip_gradients(parameters: Iterable[nn.Parameter], clip_norm: float) -> torch.Tensor:
    """Scale gradients down to the global norm ``clip_norm``; return the norm before clipping."""
    limit = clip_norm if clip_norm > 0 else float("inf")
    return nn.utils.clip_grad_norm_(parameters, limit)
