"""Normalisation layers over the last dimension.

All of them compute in float32 whatever the input's dtype, and cast the result back once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lm_experiments.model.checks import check_positive
from lm_experiments.registry import NoOptions, register


@dataclass(frozen=True)
class NormOptions:
    """Options of a norm.

    Attributes:
        eps: added to the variance before the square root.
    """

    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_positive("model.norm.eps", self.eps, "for example 1e-5")


@dataclass(frozen=True)
class RMSNormOptions(NormOptions):
    """Options of RMSNorm.

    Attributes:
        offset: whether the learned gain is stored as its difference from 1.
    """

    offset: bool = False


@dataclass(frozen=True)
class LayerNormOptions(NormOptions):
    """Options of LayerNorm.

    Attributes:
        gain: whether it has a learned gain.
        shift: whether it has a learned shift.
    """

    gain: bool = True
    shift: bool = True


@dataclass(frozen=True)
class ScaleNormOptions(NormOptions):
    """Options of ScaleNorm.

    Attributes:
        eps: the smallest length to divide by.
    """


@dataclass(frozen=True)
class DyTOptions:
    """Options of DyT.

    Attributes:
        alpha: the initial value of the learned slope of the tanh.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        check_positive("model.norm.alpha", self.alpha, "for example 0.5")


class Norm(nn.Module):
    """Base class of norms, built with (options, width); maps (..., width) to the same shape."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x``."""
        raise NotImplementedError


@register("norm", "rmsnorm", RMSNormOptions)
class RMSNorm(Norm):
    """Divide by the root mean square, then scale; no mean, no bias (Zhang and Sennrich 2019).

    With ``offset`` the gain is ``1 + weight``, as in Gemma, which is more precise near 1 in
    bfloat16.
    """

    def __init__(self, options: NormOptions, width: int) -> None:
        super().__init__()
        self.eps = options.eps
        # A user's subclass may have options without `offset`.
        self.offset: bool = getattr(options, "offset", False)
        self.weight = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        """Set the gain to 1."""
        nn.init.constant_(self.weight, 0.0 if self.offset else 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x``."""
        gain = self.weight.float() + 1 if self.offset else self.weight.float()
        if x.device.type == "cpu" and torch.is_grad_enabled():
            scaled: Tensor = _RMSNorm.apply(x.float(), gain, self.eps)  # type: ignore[no-untyped-call]
            return scaled.to(x.dtype)
        return F.rms_norm(x.float(), gain.shape, gain, self.eps).to(x.dtype)


class _RMSNorm(torch.autograd.Function):
    """RMSNorm with a closed-form gradient; PyTorch has no fused RMSNorm for CPUs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return ``x`` (..., width) normalised and multiplied by ``weight`` (width,)."""
        scale = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        normed = x * scale
        ctx.save_for_backward(normed, weight, scale)
        return normed * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of ``x`` and ``weight``."""
        (grad,) = grad_outputs
        normed, weight, scale = ctx.saved_tensors
        grad_weight = (grad * normed).flatten(0, -2).sum(0)
        grad_normed = grad * weight
        along = (grad_normed * normed).mean(-1, keepdim=True)
        return grad_normed.addcmul(normed, along, value=-1).mul_(scale), grad_weight, None


@register("norm", "layernorm", LayerNormOptions)
class LayerNorm(Norm):
    """Subtract the mean, divide by the standard deviation, scale and shift (Ba et al. 2016)."""

    def __init__(self, options: NormOptions, width: int) -> None:
        super().__init__()
        self.eps = options.eps
        self.width = (width,)
        has_gain, has_shift = getattr(options, "gain", True), getattr(options, "shift", True)
        self.weight = nn.Parameter(torch.empty(width)) if has_gain else None
        self.bias = nn.Parameter(torch.empty(width)) if has_shift else None

    def reset_parameters(self) -> None:
        """Set the gain to 1 and the shift to 0."""
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x``."""
        gain = None if self.weight is None else self.weight.float()
        shift = None if self.bias is None else self.bias.float()
        return F.layer_norm(x.float(), self.width, gain, shift, self.eps).to(x.dtype)


@register("norm", "layernorm_plain", NormOptions)
class PlainLayerNorm(LayerNorm):
    """LayerNorm without learned parameters (Xu et al. 2019)."""

    def __init__(self, options: NormOptions, width: int) -> None:
        super().__init__(LayerNormOptions(options.eps, gain=False, shift=False), width)


@register("norm", "scalenorm", ScaleNormOptions)
class ScaleNorm(Norm):
    """Scale to one learned length, which starts at sqrt(width) (Nguyen and Salazar 2019)."""

    def __init__(self, options: ScaleNormOptions, width: int) -> None:
        super().__init__()
        self.eps = options.eps
        self.width = width
        self.length = nn.Parameter(torch.empty(1))

    def reset_parameters(self) -> None:
        """Set the length to sqrt(width), so that the root mean square is 1."""
        nn.init.constant_(self.length, math.sqrt(self.width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``x``."""
        return (self.length.float() * F.normalize(x.float(), dim=-1, eps=self.eps)).to(x.dtype)


@register("norm", "dyt", DyTOptions)
class DyT(Norm):
    """No statistics: ``gain * tanh(alpha * x) + shift``, all three learned (Zhu et al. 2025)."""

    def __init__(self, options: DyTOptions, width: int) -> None:
        super().__init__()
        self.start = options.alpha
        self.alpha = nn.Parameter(torch.empty(1))
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        """Set alpha to its initial value, the gain to 1 and the shift to 0."""
        nn.init.constant_(self.alpha, self.start)
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the scaled tanh elementwise."""
        squashed = torch.tanh(self.alpha.float() * x.float())
        return torch.addcmul(self.bias.float(), squashed, self.weight.float()).to(x.dtype)


@register("norm", "none")
class NoNorm(Norm):
    """No normalisation: the identity, without parameters."""

    def __init__(self, options: NoOptions, width: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``."""
        return x
