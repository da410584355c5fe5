"""How scores become mixed values: three ways to compute one formula, chosen for speed.

Each query sees the keys up to its own place, within a window and its document where there are
such, and the formula is ``softmax(cap(scale * q k) + bias) v``. PyTorch's fused kernel serves
whatever it can express. FlexAttention serves the rest on a GPU, and on a CPU it is written out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from lm_experiments.model.documents import Location
from lm_experiments.model.positions import Position

# FlexAttention's kernels have no narrower heads.
FLEX_HEAD_WIDTH = 16


@dataclass(frozen=True)
class Scope:
    """What the attention of a layer sees, and how it is told where things stand.

    Attributes:
        position: the position encoding of the layer, with its ``phases``.
        causal: whether each query sees the keys up to its own place and nothing else matters.
        mask: else what is added to the scores (or, of booleans, which are seen), broadcast to
            (batch, heads, queries, keys); None where each query sees all keys.
        bias: what the position encoding adds, where ``blocks`` is used, not ``mask``.
        blocks: which keys are seen, for FlexAttention.
    """

    position: Position
    phases: Tensor | None
    causal: bool = True
    mask: Tensor | None = None
    bias: Tensor | None = None
    blocks: BlockMask | None = None


def scope(
    position: Position,
    phases: Tensor | None,
    location: Location,
    head_width: int,
    window: int | None = None,
    softcap: float | None = None,
) -> Scope:
    """Work out, once for all layers alike, what their attention sees.

    Args:
        position: the position encoding of these layers.
        phases: its phases at the tokens' positions.
        location: where the tokens stand.
        head_width: the width of a head.
        window: how many keys a query sees, itself included; None for all before it.
        softcap: the cap of the scores, which the fused kernel does not know.
    """
    bias = position.bias(location.query_positions, location.key_positions)
    if window is not None and window >= location.keys:
        window = None
    bare = bias is None and window is None and location.key_documents is None and softcap is None
    if bare and (location.offset == 0 or location.queries == 1):
        return Scope(position, phases, causal=location.offset == 0)
    if not bare and _flex_serves(location, bias, head_width):
        return Scope(position, phases, False, bias=bias, blocks=blocks(location, window))
    mask = visible(location, window)
    if bias is not None:
        mask = bias.masked_fill(~mask, -torch.inf)
    return Scope(position, phases, False, mask)


def visible(location: Location, window: int | None) -> Tensor:
    """Return which keys each query sees: booleans (queries, keys) or (batch, 1, queries, keys)."""
    device = location.positions.device
    keys = torch.arange(location.keys, device=device)
    queries = keys[location.offset :, None]
    seen = keys <= queries
    if window is not None:
        seen = seen & (queries - keys < window)
    if location.query_documents is None or location.key_documents is None:
        return seen
    same = location.query_documents[:, :, None] == location.key_documents[:, None, :]
    return (seen & same)[:, None]


def blocks(location: Location, window: int | None) -> BlockMask:
    """Return what `visible` does, without a cache, in the blocks of FlexAttention."""
    documents = location.key_documents

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        found = key <= query
        if window is not None:
            found = found & (query - key < window)
        if documents is not None:
            found = found & (documents[batch, query] == documents[batch, key])
        return found

    batch = None if documents is None else len(documents)
    device = location.positions.device
    size = location.queries
    return create_block_mask(seen, batch, None, size, size, device=device)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scope: Scope,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Mix ``value`` by the softmax of the scores.

    Args:
        query: (batch, heads, queries, head_width).
        key: (batch, kv_heads, keys, head_width); each serves ``heads / kv_heads`` heads.
        value: as ``key``.
        scope: what is seen.
        scale: of the scores; None for ``1 / sqrt(head_width)``.
        softcap: scores become ``cap * tanh(scores / cap)`` before the bias.

    Returns:
        (batch, heads, queries, head_width).
    """
    if scope.blocks is not None:
        return flex(query, key, value, scope, scale, softcap)
    if softcap is not None:
        return written_out(query, key, value, scope, scale, softcap)
    mask = scope.mask
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(query.dtype)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=scope.causal,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scope: Scope,
    scale: float | None,
    softcap: float | None,
) -> Tensor:
    """Compute `attend` from its formula, the softmax in float32."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query @ key.transpose(-1, -2)).float() * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if scope.mask is not None and scope.mask.dtype == torch.bool:
        scores = scores.masked_fill(~scope.mask, -torch.inf)
    elif scope.mask is not None:
        scores = scores + scope.mask
    return scores.softmax(-1).to(value.dtype) @ value


def flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scope: Scope,
    scale: float | None,
    softcap: float | None,
) -> Tensor:
    """Compute `attend` by FlexAttention (Dong et al. 2024), which fuses what changes the scores."""
    bias = scope.bias

    def change(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        if bias is None:
            return score
        return score + (bias[b, h, q, k] if bias.dim() == 4 else bias[h, q, k])

    mixed = _flex_function(query.device.type)(
        query,
        key,
        value,
        score_mod=None if softcap is None and bias is None else change,
        block_mask=scope.blocks,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return cast(Tensor, mixed)


def _flex_function(device_type: str) -> Callable[..., Any]:
    # Eager FlexAttention holds all scores; within a compiled model it is compiled anyway.
    if device_type == "cpu" or torch.compiler.is_compiling():
        return flex_attention
    return _compiled_flex()


@functools.cache
def _compiled_flex() -> Callable[..., Any]:
    return torch.compile(flex_attention)


def _flex_serves(location: Location, bias: Tensor | None, head_width: int) -> bool:
    """Whether the kernels of FlexAttention can be used, and are of use: trained biases are not."""
    return (
        location.positions.is_cuda
        and location.offset == 0
        and head_width >= FLEX_HEAD_WIDTH
        and not (bias is not None and bias.requires_grad)
    )
