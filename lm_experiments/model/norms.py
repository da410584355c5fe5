"""Normalisation layers over the last dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .registry import NoOptions, register


@dataclass(frozen=True)
class NormOptions:
    """Options of a norm: ``eps`` is added to the variance, whatever the dtype."""

    eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.eps <= 0:
            raise ValueError(f"model.norm.eps={self.eps:g} must be positive, for example 1e-5.")


class Norm(nn.Module):
    """Base of all norms: built with (options, width), maps (..., width) to the same shape."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x``."""
        raise NotImplementedError


@register("norm", "rmsnorm", NormOptions)
class RMSNorm(Norm):
    """Divide by the root mean square, then scale; no mean, no bias (Zhang and Sennrich 2019).

    Statistics and scaling are in float32 whatever the input's dtype; the result is cast once.
    """

    def __init__(self, options: NormOptions, width: int) -> None:
        super().__init__()
        self.eps = options.eps
        self.weight = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        """Set the gain to 1."""
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x``."""
        if x.device.type == "cpu" and torch.is_grad_enabled():
            weight = self.weight.float()
            scaled: Tensor = _RMSNorm.apply(x.float(), weight, self.eps)  # type: ignore[no-untyped-call]
            return scaled.to(x.dtype)
        normed = F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps)
        return normed.to(x.dtype)


class _RMSNorm(torch.autograd.Function):
    """RMSNorm in float32 with its gradient in closed form: on CPUs torch has no kernel of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        normed = x * scale
        ctx.save_for_backward(normed, weight, scale)
        return normed * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        (grad,) = grad_outputs
        normed, weight, scale = ctx.saved_tensors
        grad_weight = (grad * normed).flatten(0, -2).sum(0)
        grad_normed = grad * weight
        along = (grad_normed * normed).mean(-1, keepdim=True)
        return grad_normed.addcmul(normed, along, value=-1).mul_(scale), grad_weight, None


@register("norm", "layernorm", NormOptions)
class LayerNorm(Norm):
    """Subtract the mean, divide by the standard deviation, scale and shift (Ba et al. 2016).

    Statistics are in float32 whatever the input's dtype; the result is cast once.
    """

    def __init__(self, options: NormOptions, width: int) -> None:
        super().__init__()
        self.eps = options.eps
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        """Set the gain to 1 and the shift to 0."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x``."""
        shape = self.weight.shape
        normed = F.layer_norm(x.float(), shape, self.weight.float(), self.bias.float(), self.eps)
        return normed.to(x.dtype)


@register("norm", "none")
class NoNorm(Norm):
    """No normalisation: the identity, without parameters."""

    def __init__(self, options: NoOptions, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``."""
        return x
