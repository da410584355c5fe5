"""Attention kernels: three implementations of ``softmax(cap(scale * q k) + bias) v``.

Each query attends to the keys up to its own position, optionally within a sliding window and
within its document. PyTorch's fused kernel is used wherever it can express this. Otherwise
FlexAttention is used on a GPU, and an eager implementation on a CPU.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from lm_experiments.model.documents import Location
from lm_experiments.model.positions import PairBias, Position

# FlexAttention has no kernels for narrower heads.
FLEX_HEAD_WIDTH = 16

_compile = functools.cache(torch.compile)


@dataclass(frozen=True)
class AttentionContext:
    """The position encoding and the attention mask of a layer.

    Attributes:
        position: the position encoding of the layer.
        phases: its phases at the positions of the tokens.
        causal: whether the mask is the plain causal mask; `mask` is then None.
        mask: a boolean mask, or an additive mask that includes the position bias; broadcast to
            (batch, heads, queries, keys). None if every query attends to all keys.
        bias: the position bias of (head, query, key), only with `block_mask`.
        block_mask: the mask for FlexAttention, used instead of `mask`.
        softcap: scores become ``cap * tanh(scores / cap)`` before the bias is added; None for no
            cap.
    """

    position: Position
    phases: Tensor | None
    causal: bool = True
    mask: Tensor | None = None
    bias: PairBias | None = None
    block_mask: BlockMask | None = None
    softcap: float | None = None


def attention_context(
    position: Position,
    phases: Tensor | None,
    location: Location,
    head_width: int,
    window: int | None = None,
    softcap: float | None = None,
) -> AttentionContext:
    """Build the attention mask, once for all layers that share it.

    ``window`` is how many keys a query attends to, including itself; None for all earlier keys.
    """
    if window is not None and window >= location.keys:
        window = None
    in_flex = location.positions.is_cuda and location.offset == 0 and head_width >= FLEX_HEAD_WIDTH
    pairs = position.pair_bias() if in_flex else None
    bias = None
    if pairs is None:
        bias = position.bias(location.query_positions, location.key_positions)
    biased = pairs is not None or bias is not None
    plain = not biased and window is None and location.key_documents is None and softcap is None
    if plain and (location.offset == 0 or location.queries == 1):
        return AttentionContext(position, phases, causal=location.offset == 0)
    # FlexAttention has no gradient for a learned bias.
    if in_flex and not (bias is not None and bias.requires_grad):
        pairs = pairs if bias is None else functools.partial(_looked_up, bias)
        blocks = block_mask(location, window)
        return AttentionContext(position, phases, False, None, pairs, blocks, softcap)
    mask = boolean_mask(location, window)
    if bias is not None:
        mask = bias.masked_fill(~mask, -torch.inf)
    return AttentionContext(position, phases, False, mask, softcap=softcap)


def boolean_mask(location: Location, window: int | None) -> Tensor:
    """Return the mask, (queries, keys) or (batch, 1, queries, keys); True where attended to."""
    keys, queries = location.key_positions, location.query_positions[:, None]
    mask = keys <= queries
    if window is not None:
        mask = mask & (queries - keys < window)
    if location.query_documents is None or location.key_documents is None:
        return mask
    same = location.query_documents[:, :, None] == location.key_documents[:, None, :]
    return (mask & same)[:, None]


def block_mask(location: Location, window: int | None) -> BlockMask:
    """Return the mask of `boolean_mask` as a FlexAttention block mask; without a cache only."""
    documents, size = location.key_documents, location.queries
    device = location.positions.device
    if documents is None:
        return _block_mask_of_all(size, window, device)

    def _attends(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = documents[batch, query] == documents[batch, key]
        return _reaches(window, query, key) & same

    # Uncompiled, it holds every pair of positions.
    create = create_block_mask if device.type == "cpu" else _compile(create_block_mask)
    return cast(BlockMask, create(_attends, len(documents), None, size, size, device=device))


@functools.lru_cache(maxsize=16)
def _block_mask_of_all(size: int, window: int | None, device: torch.device) -> BlockMask:
    """Return the block mask of a length and a window, made once for all batches."""

    def _attends(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return _reaches(window, query, key)

    # Training cannot use tensors that validation has made in inference mode.
    with torch.inference_mode(False):
        return create_block_mask(_attends, None, None, size, size, device=device)


def _reaches(window: int | None, query: Tensor, key: Tensor) -> Tensor:
    mask = key <= query
    return mask if window is None else mask & (query - key < window)


def _looked_up(bias: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return bias[head, query, key]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    context: AttentionContext,
    scale: float | None = None,
) -> Tensor:
    """Compute attention with the kernel that fits the context.

    Args:
        query: (batch, heads, queries, head_width).
        key: (batch, kv_heads, keys, head_width); each serves ``heads / kv_heads`` query heads.
        value: as ``key``.
        context: the attention mask, and the cap of the scores.
        scale: multiplies the scores; None for ``1 / sqrt(head_width)``.

    Returns:
        (batch, heads, queries, head_width).
    """
    if context.block_mask is not None:
        return flex(query, key, value, context, scale)
    if context.softcap is not None:
        return eager_attention(query, key, value, context, scale)
    mask = context.mask
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(query.dtype)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=context.causal,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def eager_attention(
    query: Tensor, key: Tensor, value: Tensor, context: AttentionContext, scale: float | None
) -> Tensor:
    """Compute `attend` step by step, with the softmax in float32."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query @ key.transpose(-1, -2)).float() * scale
    if (softcap := context.softcap) is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if context.mask is not None and context.mask.dtype == torch.bool:
        scores = scores.masked_fill(~context.mask, -torch.inf)
    elif context.mask is not None:
        scores = scores + context.mask
    return scores.softmax(-1).to(value.dtype) @ value


def flex(
    query: Tensor, key: Tensor, value: Tensor, context: AttentionContext, scale: float | None
) -> Tensor:
    """Compute `attend` with FlexAttention (Dong et al. 2024)."""
    bias, softcap = context.bias, context.softcap

    def _score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        return score if bias is None else score + bias(h, q, k)

    # Eager FlexAttention materialises all scores. Inside a compiled model it is compiled anyway.
    eager = query.device.type == "cpu" or torch.compiler.is_compiling()
    kernel = cast(Any, flex_attention if eager else _compile(flex_attention))
    mixed = kernel(
        query,
        key,
        value,
        score_mod=None if softcap is None and bias is None else _score_mod,
        block_mask=context.block_mask,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return cast(Tensor, mixed)
