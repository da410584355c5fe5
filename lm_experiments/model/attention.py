"""Self-attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .linear import Linear
from .positions import Position
from .registry import NoOptions, register


@dataclass(frozen=True)
class AttentionSizes:
    """The sizes attention is built from; ``bias`` gives its projections biases."""

    d_model: int
    n_heads: int
    head_width: int
    bias: bool = False


class Attention(nn.Module):
    """Base of all attentions: built with (options, sizes), maps (batch, length, d_model) to itself.

    The position encoding is not part of attention: it is passed to each call, with its phases.
    """

    def forward(
        self, x: Tensor, position: Position, phases: Tensor | None, positions: Tensor
    ) -> Tensor:
        """Mix each position of ``x`` with those before it."""
        raise NotImplementedError

    def flops(self, length: int) -> int:
        """Return the forward FLOPs of the scores and the mixing, for one full square sequence."""
        raise NotImplementedError


@register("attention", "causal")
class CausalAttention(Attention):
    """Multi-head attention over this and all earlier positions (Vaswani et al. 2017)."""

    def __init__(self, options: NoOptions, sizes: AttentionSizes) -> None:
        super().__init__()
        self.sizes = sizes
        inner = sizes.n_heads * sizes.head_width
        self.query = Linear(sizes.d_model, inner, role="query", bias=sizes.bias)
        self.key = Linear(sizes.d_model, inner, role="key", bias=sizes.bias)
        self.value = Linear(sizes.d_model, inner, role="value", bias=sizes.bias)
        self.out = Linear(inner, sizes.d_model, role="out", bias=sizes.bias)

    def forward(
        self, x: Tensor, position: Position, phases: Tensor | None, positions: Tensor
    ) -> Tensor:
        """Mix each position of ``x`` with those before it."""
        query = position.rotate(self._split_heads(self.query(x)), phases)
        key = position.rotate(self._split_heads(self.key(x)), phases)
        value = self._split_heads(self.value(x))
        bias = position.bias(positions, positions)
        if bias is None:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            hidden = positions[:, None] < positions[None, :]
            mask = bias.masked_fill(hidden, -torch.inf).to(query.dtype)
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def flops(self, length: int) -> int:
        """Return the forward FLOPs of the scores and the mixing, for one full square sequence."""
        return 4 * length * length * self.sizes.n_heads * self.sizes.head_width

    def _split_heads(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, self.sizes.n_heads, self.sizes.head_width).transpose(1, 2)
