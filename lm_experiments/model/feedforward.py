"""Position-wise feed-forward layers, gated and ungated, and the width that matches them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm_experiments.model.checks import check_choice
from lm_experiments.model.projection import Projection
from lm_experiments.registry import component, register

# Tensor cores need multiples of 8, but small models cannot be matched that coarsely: a matched
# width is a multiple of the first of these that is off by at most `ROUNDING` of the tolerance.
WIDTH_STEPS = (8, 4, 2)
ROUNDING = 0.1


@dataclass(frozen=True)
class GELUOptions:
    """Options of GELU.

    Attributes:
        approximate: how GELU is computed: ``none`` for exactly, ``tanh`` for the approximation that
            GPT-2 and Gemma use.
    """

    approximate: str = "none"

    def __post_init__(self) -> None:
        check_choice("model.ffn.approximate", self.approximate, ("none", "tanh"))


class FeedForward(nn.Module):
    """Base class of feed-forwards, (..., d_model) to the same shape.

    Built with (options, d_model, width, bias). Subclasses define `_activate`.

    Attributes:
        matrices: the number of d_model x width weight matrices: 2, or 3 with a gate.
    """

    matrices: ClassVar[int]

    def __init__(self, options: Any, d_model: int, width: int, bias: bool = False) -> None:
        super().__init__()
        self.options = options
        if self.matrices == 3:
            self.gate = Projection(d_model, width, role="gate", bias=bias)
        self.up = Projection(d_model, width, role="up", bias=bias)
        self.down = Projection(width, d_model, role="down", bias=bias)

    def _activate(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Ungated(FeedForward):
    """``down(activation(up(x)))``."""

    matrices: ClassVar[int] = 2

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer at each position."""
        hidden: Tensor = self.down(self._activate(self.up(x)))
        return hidden


class Gated(FeedForward):
    """``down(activation(gate(x)) * up(x))`` (Shazeer 2020)."""

    matrices: ClassVar[int] = 3

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer at each position."""
        hidden: Tensor = self.down(self._activate(self.gate(x)) * self.up(x))
        return hidden


@register("ffn", "relu")
class ReLU(Ungated):
    """Ungated, max(x, 0) (Vaswani et al. 2017)."""

    def _activate(self, x: Tensor) -> Tensor:
        return F.relu(x)


@register("ffn", "gelu", GELUOptions)
class GELU(Ungated):
    """Ungated, x times the normal distribution function of x (Hendrycks and Gimpel 2016)."""

    def _activate(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate=self.options.approximate)


@register("ffn", "silu")
class SiLU(Ungated):
    """Ungated, x * sigmoid(x), also known as Swish (Ramachandran et al. 2017)."""

    def _activate(self, x: Tensor) -> Tensor:
        return F.silu(x)


@register("ffn", "relu2")
class SquaredReLU(Ungated):
    """Ungated, max(x, 0) squared (So et al. 2021)."""

    def _activate(self, x: Tensor) -> Tensor:
        return F.relu(x).square()


@register("ffn", "glu")
class GLU(Gated):
    """Gated by sigmoid (Dauphin et al. 2017)."""

    def _activate(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)


@register("ffn", "bilinear")
class Bilinear(Gated):
    """Gated without an activation: the product of two linear maps (Shazeer 2020)."""

    def _activate(self, x: Tensor) -> Tensor:
        return x


@register("ffn", "swiglu")
class SwiGLU(Gated):
    """Gated by SiLU (Shazeer 2020)."""

    _activate = SiLU._activate


@register("ffn", "geglu", GELUOptions)
class GEGLU(Gated):
    """Gated by GELU (Shazeer 2020)."""

    _activate = GELU._activate


@register("ffn", "reglu")
class ReGLU(Gated):
    """Gated by ReLU (Shazeer 2020)."""

    _activate = ReLU._activate


def matched_width(name: str, d_ff: int, tolerance: float) -> int:
    """Return the width at which ``name`` has as many weights as an ungated one of width ``d_ff``.

    An ungated feed-forward has ``2 * d_model * d_ff`` weights; a gated one has three matrices, so
    it needs two thirds of the width: the nearest multiple of one of `WIDTH_STEPS` where that is
    close, otherwise the nearest whole number.

    Raises:
        ValueError: if it differs by more than ``tolerance``, a fraction.
    """
    layer = cast("type[FeedForward]", component("ffn", name).build)
    if layer.matrices == Ungated.matrices:
        return d_ff
    exact = d_ff * Ungated.matrices / layer.matrices
    width = nearest_width(exact, lambda n: n / exact - 1, tolerance)
    off = width / exact - 1
    if abs(off) <= tolerance:
        return width
    raise ValueError(
        f"ffn={name} cannot match the weights of model.d_ff={d_ff} within match_tolerance="
        f"{tolerance:g}: the nearest width, {width}, is off by {off:+.3%}; "
        f"type match_tolerance={enough(off):g} or another model.d_ff."
    )


def nearest_width(exact: float, off: Callable[[int], float], tolerance: float) -> int:
    """Return the width nearest to ``exact``, a round one where that is close.

    Args:
        exact: the width that would match, if it were whole.
        off: the fraction by which what is matched differs at a width.
        tolerance: the largest such fraction that may be; the width may be off by more.
    """
    widths = [max(step, round(exact / step) * step) for step in (*WIDTH_STEPS, 1)]
    close = (n for n in widths if abs(off(n)) <= ROUNDING * tolerance)
    return next(close, widths[-1])


def enough(off: float) -> float:
    """Return the least tolerance, to four decimals, that allows a width that is off."""
    return math.ceil(abs(off) * 10_000 + 0.01) / 10_000
