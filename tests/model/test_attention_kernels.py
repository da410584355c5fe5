"""The attention kernels agree in values and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from lm_experiments.model import attention_kernels
from lm_experiments.model.attention_kernels import (
    AttentionContext,
    attend,
    attention_context,
    block_mask,
    eager_attention,
    flex,
)
from lm_experiments.model.documents import Location, locate
from lm_experiments.model.positions import Position, PositionSizes
from lm_experiments.registry import component

BATCH, HEADS, KV_HEADS, LENGTH, WIDTH = 2, 4, 2, 12, 16
SIZES = PositionSizes(d_model=HEADS * WIDTH, n_heads=HEADS, head_width=WIDTH, context_length=LENGTH)
TOKENS = torch.zeros(BATCH, LENGTH, dtype=torch.long)
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 7, [0] * 12])

Kernel = Callable[[Tensor, Tensor, Tensor, AttentionContext, float | None], Tensor]


def position(name: str) -> Position:
    known = component("position", name)
    built: Position = known.build(known.options(), SIZES)
    if callable(reset := getattr(built, "reset_parameters", None)):
        reset()
    return built


def dense(
    position: Position, location: Location, window: int | None, softcap: float | None
) -> AttentionContext:
    """Return the context with an explicit mask, also if a faster kernel would do."""
    mask = attention_kernels.boolean_mask(location, window)
    bias = position.bias(location.query_positions, location.key_positions)
    if bias is not None:
        mask = bias.masked_fill(~mask, -1e30)
    return AttentionContext(position, None, False, mask, softcap=softcap)


def in_blocks(
    position: Position, location: Location, window: int | None, softcap: float | None
) -> AttentionContext:
    pairs = position.pair_bias()
    bias = position.bias(location.query_positions, location.key_positions)
    if bias is not None and pairs is None:
        pairs = partial(attention_kernels._looked_up, bias)
    blocks = block_mask(location, window)
    return AttentionContext(position, None, False, None, pairs, blocks, softcap)


def test_the_block_mask_of_a_length_and_window_is_made_once() -> None:
    plain, documents = locate(TOKENS, None), locate(TOKENS, DOCUMENTS)
    with torch.inference_mode():
        first = block_mask(plain, 4)
    assert block_mask(plain, 4) is first
    assert block_mask(plain, 5) is not first
    assert not first.kv_indices.is_inference()
    assert block_mask(documents, 4) is not block_mask(documents, 4)


@pytest.mark.parametrize("name", ["alibi", "hard_alibi"])
def test_the_bias_of_a_pair_is_that_of_the_table(name: str) -> None:
    encoding, places = position(name), torch.arange(LENGTH)
    pairs, table = encoding.pair_bias(), encoding.bias(places, places)
    assert pairs is not None and table is not None
    heads = torch.arange(HEADS)[:, None, None]
    assert torch.equal(pairs(heads, places[:, None], places), table)


def problem(kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    shapes = [(BATCH, heads, LENGTH, WIDTH) for heads in (HEADS, kv_heads, kv_heads)]
    query, key, value = (torch.randn(shape, requires_grad=True) for shape in shapes)
    return query, key, value


def values_and_gradients(
    kernel: Kernel, parts: tuple[Tensor, Tensor, Tensor], context: AttentionContext
) -> list[Tensor]:
    out = kernel(*parts, context, 0.3)
    weights = torch.linspace(-1, 1, out.numel()).view_as(out)
    return [out, *torch.autograd.grad((out * weights).sum(), parts)]


EVERY_PAIR = list(
    itertools.product(
        (HEADS, KV_HEADS, 1),
        (None, 3),
        (None, DOCUMENTS),
        ("none", "alibi", "hard_alibi", "t5"),
        (None, 1.0),
    )
)


@pytest.mark.parametrize(("kv_heads", "window", "documents", "name", "softcap"), EVERY_PAIR)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_all_kernels_agree(
    kv_heads: int, window: int | None, documents: Tensor | None, name: str, softcap: float | None
) -> None:
    parts, encoding = problem(kv_heads), position(name)
    location = locate(TOKENS, documents=documents)
    chosen = attention_context(encoding, None, location, WIDTH, window, softcap)
    written = dense(encoding, location, window, softcap)
    expected = values_and_gradients(eager_attention, parts, written)
    found = values_and_gradients(attend, parts, chosen)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    # FlexAttention has no gradients on a CPU.
    fixed = [part.detach() for part in parts]
    with torch.no_grad():
        by_blocks = flex(*fixed, in_blocks(encoding, location, window, softcap), 0.3)
    torch.testing.assert_close(by_blocks, expected[0].detach(), atol=2e-5, rtol=1e-5)


def test_the_fast_kernel_is_used_where_nothing_else_is_needed() -> None:
    location = locate(TOKENS)
    assert attention_context(position("rope"), None, location, WIDTH).causal
    for changed in (
        attention_context(position("alibi"), None, location, WIDTH),
        attention_context(position("rope"), None, location, WIDTH, window=3),
        attention_context(position("rope"), None, location, WIDTH, softcap=3.0),
        attention_context(position("rope"), None, locate(TOKENS, documents=DOCUMENTS), WIDTH),
    ):
        assert not changed.causal and changed.mask is not None


def test_the_fast_kernel_gives_the_bits_it_always_gave() -> None:
    parts = problem(HEADS)
    found = attend(*parts, attention_context(position("rope"), None, locate(TOKENS), WIDTH))
    expected = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_other_types_stay_what_they_are(dtype: torch.dtype, softcap: float | None) -> None:
    parts = [part.to(dtype) for part in problem(KV_HEADS)]
    chosen = attention_context(position("alibi"), None, locate(TOKENS), WIDTH, 5, softcap)
    out = attend(*parts, chosen)
    assert out.dtype == dtype
    exact = attend(*(part.float() for part in parts), chosen)
    torch.testing.assert_close(out.float(), exact, atol=0.03, rtol=0.03)
