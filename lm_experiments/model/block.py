"""The transformer block. One formula covers every norm placement.

Each sublayer ``f`` (attention, then feed-forward) has three optional norms::

    x = out_norm(weight * x + residual_norm(f(in_norm(x))))

In a parallel block both sublayers read the same residual stream, and their outputs are added to it
together. A placement says which norms exist, how the residual stream is weighted, and whether a
final norm follows the last block. A new placement is one entry in `PLACEMENTS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from lm_experiments.model.attention import Attention
from lm_experiments.model.attention_kernels import AttentionContext
from lm_experiments.model.cache import LayerCache
from lm_experiments.model.feedforward import FeedForward
from lm_experiments.registry import NoOptions, add


@dataclass(frozen=True)
class Placement:
    """Where the norms of a block are, and how its sublayers join the residual stream.

    Attributes:
        in_norm: whether the input of each sublayer is normalised.
        residual_norm: whether the output of each sublayer is normalised.
        out_norm: whether the residual stream is normalised after each sublayer.
        final_norm: whether a norm follows the last block.
        parallel: whether both sublayers read the same residual stream.
        shared_norm: whether the sublayers of a parallel block share one ``in_norm``.
        deep: whether the residual stream is weighted by ``(2 n_layers)^(1/4)`` (DeepNorm).
    """

    in_norm: bool = False
    residual_norm: bool = False
    out_norm: bool = False
    final_norm: bool = False
    parallel: bool = False
    shared_norm: bool = False
    deep: bool = False

    def stream_weight(self, n_layers: int) -> float:
        """Return the factor on the residual stream where a sublayer's output is added."""
        return float((2 * n_layers) ** 0.25) if self.deep else 1.0


PLACEMENTS = {
    "pre": (
        "x + f(norm(x)), and one norm after the last block (Xiong et al. 2020).",
        Placement(in_norm=True, final_norm=True),
    ),
    "post": (
        "norm(x + f(x)), no final norm (Vaswani et al. 2017).",
        Placement(out_norm=True),
    ),
    "peri": (
        "x + norm(f(norm(x))), also called sandwich, and a final norm (Ding et al. 2021).",
        Placement(in_norm=True, residual_norm=True, final_norm=True),
    ),
    "reordered": (
        "x + norm(f(x)), and a final norm (OLMo 2, Walsh et al. 2024).",
        Placement(residual_norm=True, final_norm=True),
    ),
    "parallel": (
        "x + attention(n) + ffn(n) with n = norm(x), and a final norm (GPT-J, PaLM).",
        Placement(in_norm=True, final_norm=True, parallel=True, shared_norm=True),
    ),
    "parallel_two": (
        "x + attention(norm1(x)) + ffn(norm2(x)), and a final norm (GPT-NeoX).",
        Placement(in_norm=True, final_norm=True, parallel=True),
    ),
    "deepnorm": (
        "norm((2L)^(1/4) x + f(x)), no final norm, a smaller init (Wang et al. 2022).",
        Placement(out_norm=True, deep=True),
    ),
}


for _name, (_summary, _placement) in PLACEMENTS.items():
    add("placement", _name, lambda _, placement=_placement: placement, NoOptions, _summary)


class Residual(nn.Module):
    """The residual connection of a sublayer: its norms, and dropout on its output.

    A norm that the placement does not have is None and costs nothing.
    """

    def __init__(
        self,
        placement: Placement,
        build_norm: Callable[[], nn.Module],
        dropout: nn.Module | None = None,
        stream_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.stream_weight = stream_weight
        self.in_norm = build_norm() if placement.in_norm else None
        self.residual_norm = build_norm() if placement.residual_norm else None
        self.out_norm = build_norm() if placement.out_norm else None

    def enter(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        return x if self.in_norm is None else self.in_norm(x)

    def branch(self, out: Tensor) -> Tensor:
        """Return what is added to the residual stream."""
        if self.residual_norm is not None:
            out = self.residual_norm(out)
        return out if self.dropout is None else self.dropout(out)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``out_norm(stream_weight * x + residual_norm(sublayer(in_norm(x))))``."""
        branch = self.branch(sublayer(self.enter(x)))
        x = (x if self.stream_weight == 1 else x * self.stream_weight) + branch
        return x if self.out_norm is None else self.out_norm(x)


class Block(nn.Module):
    """Attention, then feed-forward, each with its residual connection and norms."""

    def __init__(
        self,
        placement: Placement,
        build_norm: Callable[[], nn.Module],
        attention: Attention,
        ffn: FeedForward,
        dropouts: tuple[nn.Module | None, nn.Module | None] = (None, None),
        n_layers: int = 1,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.ffn = ffn
        weight = placement.stream_weight(n_layers)
        self.attention_residual = Residual(placement, build_norm, dropouts[0], weight)
        if placement.shared_norm:
            placement = dataclasses.replace(placement, in_norm=False)
        self.ffn_residual = Residual(placement, build_norm, dropouts[1], weight)

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        """Apply the block to the residual stream (batch, length, d_model)."""
        x = self.attention_residual(x, lambda h: self.attention(h, context, cache))
        out: Tensor = self.ffn_residual(x, self.ffn)
        return out


class ParallelBlock(Block):
    """Attention and feed-forward in parallel: both read the stream and are added to it."""

    def forward(
        self, x: Tensor, context: AttentionContext, cache: LayerCache | None = None
    ) -> Tensor:
        """Apply the block to the residual stream (batch, length, d_model)."""
        attention_in = self.attention_residual.enter(x)
        shared = self.ffn_residual.in_norm is None
        ffn_in = attention_in if shared else self.ffn_residual.enter(x)
        mixed = self.attention_residual.branch(self.attention(attention_in, context, cache))
        return x + mixed + self.ffn_residual.branch(self.ffn(ffn_in))
