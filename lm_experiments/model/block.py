"""The residual block: one forward that serves every norm placement.

Each sublayer ``f`` (attention, then feed-forward) has three places for a norm::

    x = out_norm(x + residual_norm(f(in_norm(x))))

A placement says which of them are filled, and whether a final norm follows the last block. It
is data: a new placement is a line in `PLACEMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention
from .feedforward import FeedForward
from .positions import Position
from .registry import NoOptions, add


@dataclass(frozen=True)
class Placement:
    """Where a block has its norms."""

    in_norm: bool = False
    residual_norm: bool = False
    out_norm: bool = False
    final_norm: bool = False


PLACEMENTS = {
    "pre": (
        "x + f(norm(x)), and one norm after the last block (Xiong et al. 2020).",
        Placement(in_norm=True, final_norm=True),
    ),
    "post": (
        "norm(x + f(x)), no final norm (Vaswani et al. 2017).",
        Placement(out_norm=True),
    ),
}


def _builder(placement: Placement) -> Callable[[NoOptions], Placement]:
    return lambda options: placement


for _name, (_summary, _placement) in PLACEMENTS.items():
    add("placement", _name, _builder(_placement), NoOptions, _summary)


class Residual(nn.Module):
    """A sublayer with its residual connection, its norms, and dropout on the sublayer's output.

    An empty place is None rather than an identity, so that it costs nothing.
    """

    def __init__(
        self, placement: Placement, build_norm: Callable[[], nn.Module], dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.in_norm = build_norm() if placement.in_norm else None
        self.residual_norm = build_norm() if placement.residual_norm else None
        self.out_norm = build_norm() if placement.out_norm else None

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``out_norm(x + residual_norm(sublayer(in_norm(x))))``."""
        branch = sublayer(x if self.in_norm is None else self.in_norm(x))
        if self.residual_norm is not None:
            branch = self.residual_norm(branch)
        if self.dropout:
            branch = F.dropout(branch, self.dropout, self.training)
        x = x + branch
        return x if self.out_norm is None else self.out_norm(x)


class Block(nn.Module):
    """Attention, then feed-forward, each inside a residual connection with its norms."""

    def __init__(
        self,
        placement: Placement,
        build_norm: Callable[[], nn.Module],
        attention: Attention,
        ffn: FeedForward,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.ffn = ffn
        self.attention_residual = Residual(placement, build_norm, dropout)
        self.ffn_residual = Residual(placement, build_norm, dropout)

    def forward(
        self, x: Tensor, position: Position, phases: Tensor | None, positions: Tensor
    ) -> Tensor:
        """Map the residual stream (batch, length, d_model) to the next block's."""
        x = self.attention_residual(x, lambda h: self.attention(h, position, phases, positions))
        x = self.ffn_residual(x, self.ffn)
        return x
