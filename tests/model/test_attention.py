"""Causal attention compared with an explicit softmax, with and without a bias on the scores."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_models import assert_causal, tiny_model
from torch import Tensor

from lm_experiments.model.attention import (
    AttentionOptions,
    AttentionSizes,
    CausalAttention,
    UnitVectors,
)
from lm_experiments.model.attention_kernels import AttentionContext, attention_context
from lm_experiments.model.documents import locate
from lm_experiments.model.positions import NoPosition, Position, PositionSizes
from lm_experiments.registry import NoOptions, component

LENGTH, WIDTH, HEADS, HEAD = 6, 8, 2, 4
SIZES = PositionSizes(d_model=WIDTH, n_heads=HEADS, head_width=HEAD, context_length=LENGTH)
ATTENTION_SIZES = AttentionSizes(WIDTH, HEADS, HEAD, LENGTH)
NO_POSITION = NoPosition(NoOptions(), SIZES)


class Distance(Position):
    """Scores fall with distance, each head at a slope of its own."""

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        slopes = torch.tensor([0.5, 2.0])[:, None, None]
        return slopes * (keys[None, :] - queries[:, None])


def attention() -> CausalAttention:
    return CausalAttention(AttentionOptions(), ATTENTION_SIZES)


def context_of(position: Position, length: int = LENGTH) -> AttentionContext:
    return attention_context(position, None, locate(torch.zeros(1, length, dtype=torch.long)), HEAD)


@torch.no_grad()
@pytest.mark.parametrize("kind", [NoPosition, Distance])
def test_it_is_the_softmax_over_this_and_earlier_positions(kind: type[Position]) -> None:
    layer, x, position = attention(), torch.randn(LENGTH, WIDTH), kind(NoOptions(), SIZES)
    out = layer(x[None], context_of(position))
    expected = reference(layer, x, AttentionOptions(), position)
    torch.testing.assert_close(out[0], expected)


@pytest.mark.parametrize("at", range(16))
def test_no_position_of_the_model_sees_the_future(at: int) -> None:
    assert_causal(tiny_model(), torch.randint(65, (2, 16)), at)


LONG = 12


def reference(
    layer: CausalAttention, x: Tensor, options: AttentionOptions, position: Position = NO_POSITION
) -> Tensor:
    """Compute attention over x (length, width) one head and one query at a time."""
    bias = position.bias(torch.arange(len(x)), torch.arange(len(x)))
    groups = HEADS // layer.kv_heads
    query, key, value = layer.query(x), layer.key(x), layer.value(x)
    window = options.window or len(x)
    rows = torch.zeros(len(x), WIDTH)
    for head in range(HEADS):
        mine = slice(HEAD * head, HEAD * (head + 1))
        shared = slice(HEAD * (head // groups), HEAD * (head // groups + 1))
        for row in range(len(x)):
            seen = slice(max(0, row - window + 1), row + 1)
            q, k = query[row, mine], key[seen, shared]
            if options.qk_norm == "rmsnorm":
                q, k = F.rms_norm(q, (HEAD,), eps=1e-5), F.rms_norm(k, (HEAD,), eps=1e-5)
            if options.qk_norm == "layernorm":
                q, k = F.layer_norm(q, (HEAD,)), F.layer_norm(k, (HEAD,))
            if options.qk_norm == "l2":
                start = math.log2(LONG * LONG - LONG)
                q, k = start * q / q.norm(), k / k.norm(dim=-1, keepdim=True)
            usual = 1.0 if options.qk_norm == "l2" else 1 / math.sqrt(HEAD)
            scores = k @ q * (options.scale or usual)
            if options.softcap is not None:
                scores = options.softcap * (scores / options.softcap).tanh()
            if bias is not None:
                scores = scores + bias[head, row, seen]
            rows[row, mine] = scores.softmax(0) @ value[seen, shared]
    out: Tensor = layer.out(rows)
    return out


CASES = [
    AttentionOptions(kv_heads=1),
    AttentionOptions(window=1),
    AttentionOptions(window=5),
    AttentionOptions(softcap=0.5),
    AttentionOptions(scale=2.0),
    AttentionOptions(bias=True),
    AttentionOptions(qk_norm="rmsnorm"),
    AttentionOptions(qk_norm="layernorm"),
    AttentionOptions(qk_norm="l2"),
    AttentionOptions(kv_heads=1, window=3, softcap=0.5, scale=2.0, qk_norm="rmsnorm", bias=True),
    AttentionOptions(qk_norm="l2", scale=0.5),
]


def built(options: AttentionOptions) -> CausalAttention:
    layer = CausalAttention(options, AttentionSizes(WIDTH, HEADS, HEAD, LONG))
    for module in (layer.query_norm, layer.key_norm):
        if module is not None and list(module.parameters()):
            module.reset_parameters()  # type: ignore[operator]
    return layer


@torch.no_grad()
@pytest.mark.parametrize("options", CASES, ids=str)
def test_each_option_is_its_formula(options: AttentionOptions) -> None:
    layer, x = built(options), torch.randn(LONG, WIDTH)
    location = locate(torch.zeros(1, LONG, dtype=torch.long))
    seen = attention_context(NO_POSITION, None, location, HEAD, layer.window, layer.softcap)
    torch.testing.assert_close(layer(x[None], seen)[0], reference(layer, x, options))
    plain = built(AttentionOptions())
    plain.load_state_dict(layer.state_dict(), strict=False) if options.kv_heads is None else None
    assert (layer(x[None], seen) - plain(x[None], context_of(NO_POSITION, LONG))).abs().max() > 1e-4


@torch.no_grad()
def test_a_norm_over_all_heads_spans_the_projection() -> None:
    layer = built(AttentionOptions(kv_heads=1, qk_norm="rmsnorm", qk_norm_width="model"))
    assert layer.query_norm is not None and layer.key_norm is not None
    shapes = [module.weight.shape for module in (layer.query_norm, layer.key_norm)]
    assert shapes == [(WIDTH,), (HEAD,)]
    x = torch.randn(1, LENGTH, WIDTH)
    query = layer._heads(layer.query(x), layer.query_norm).transpose(1, 2).flatten(2)
    torch.testing.assert_close(query, F.rms_norm(layer.query(x), (WIDTH,), eps=1e-5))


def test_unit_vectors_start_at_the_scale_of_the_paper() -> None:
    layer = built(AttentionOptions(qk_norm="l2"))
    assert isinstance(layer.query_norm, UnitVectors) and isinstance(layer.key_norm, UnitVectors)
    assert layer.query_norm.weight is not None and layer.key_norm.weight is None
    assert layer.query_norm.weight.item() == pytest.approx(math.log2(132))


@pytest.mark.parametrize(
    ("name", "heads", "kv_heads"),
    [
        ("causal", 8, 8),
        ("grouped", 8, 2),
        ("grouped", 2, 1),
        ("grouped", 12, 3),
        ("grouped", 10, 2),
        ("grouped", 9, 1),
        ("multi_query", 8, 1),
        ("sliding", 8, 8),
    ],
)
def test_how_many_heads_have_keys_of_their_own(name: str, heads: int, kv_heads: int) -> None:
    known = component("attention", name)
    layer = known.build(known.options(), AttentionSizes(heads * 4, heads, 4, 16))
    assert layer.kv_heads == kv_heads
    assert layer.key.weight.shape == layer.value.weight.shape == (kv_heads * 4, heads * 4)
    assert layer.window == (4 if name == "sliding" else None)


def test_a_window_of_the_whole_context_is_no_window() -> None:
    location = locate(torch.zeros(1, LENGTH, dtype=torch.long))
    assert attention_context(NO_POSITION, None, location, HEAD, window=LENGTH).causal
    assert not attention_context(NO_POSITION, None, location, HEAD, window=LENGTH - 1).causal


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 0.5 / math.sqrt(HEAD)),
        ({"scale": 3.0}, 1.5),
        ({"qk_norm": "l2"}, 1.0),
    ],
)
def test_a_scheme_scales_scores_that_grow_with_the_width(
    options: dict[str, Any], expected: float
) -> None:
    sizes = AttentionSizes(WIDTH, HEADS, HEAD, LONG, scale=0.5)
    layer = CausalAttention(AttentionOptions(**options), sizes)
    assert layer.scale == pytest.approx(expected)
    assert attention().scale is None


def test_biases_follow_the_model_unless_attention_says_otherwise() -> None:
    for option, model, expected in ((None, True, True), (False, True, False), (True, False, True)):
        sizes = AttentionSizes(WIDTH, HEADS, HEAD, LONG, bias=model)
        layer = CausalAttention(AttentionOptions(bias=option), sizes)
        parts = (layer.query, layer.key, layer.value, layer.out)
        assert all((part.bias is not None) == expected for part in parts)


def test_scores_and_mixing_cost_two_square_products() -> None:
    assert attention().flops(LENGTH) == 2 * (2 * HEADS * LENGTH * LENGTH * HEAD)
