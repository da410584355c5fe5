"""Causal attention against the softmax written out, with and without a bias on the scores."""

from __future__ import annotations

import math

import pytest
import torch
from small_models import assert_causal, tiny_model
from torch import Tensor

from lm_experiments.model.attention import (
    Attention,
    AttentionOptions,
    AttentionSizes,
    CausalAttention,
)
from lm_experiments.model.backends import Scope, scope
from lm_experiments.model.documents import locate
from lm_experiments.model.positions import NoPosition, Position, PositionSizes
from lm_experiments.model.registry import NoOptions, component, names

LENGTH, WIDTH, HEADS, HEAD = 6, 8, 2, 4
SIZES = PositionSizes(d_model=WIDTH, n_heads=HEADS, head_width=HEAD, context_length=LENGTH)
ATTENTION_SIZES = AttentionSizes(WIDTH, HEADS, HEAD, LENGTH)
NO_POSITION = NoPosition(NoOptions(), SIZES)


class Distance(Position):
    """Scores fall with distance, each head at a slope of its own."""

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        slopes = torch.tensor([0.5, 2.0])[:, None, None]
        return slopes * (keys[None, :] - queries[:, None])


class ZeroBias(Position):
    """A bias that changes nothing."""

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.zeros(HEADS, len(queries), len(keys))


def attention() -> CausalAttention:
    return CausalAttention(AttentionOptions(), ATTENTION_SIZES)


def scope_of(position: Position, length: int = LENGTH) -> Scope:
    return scope(position, None, locate(torch.zeros(1, length, dtype=torch.long)), HEAD)


def written_out(layer: CausalAttention, x: Tensor, position: Position) -> Tensor:
    """Compute one head, one query at a time."""
    query, key, value = (part(x) for part in (layer.query, layer.key, layer.value))
    positions = torch.arange(LENGTH)
    bias = position.bias(positions, positions)
    rows = torch.zeros(LENGTH, WIDTH)
    for head in range(HEADS):
        columns = slice(HEAD * head, HEAD * (head + 1))
        for row in range(LENGTH):
            scores = key[: row + 1, columns] @ query[row, columns] / math.sqrt(HEAD)
            if bias is not None:
                scores = scores + bias[head, row, : row + 1]
            rows[row, columns] = scores.softmax(0) @ value[: row + 1, columns]
    out: Tensor = layer.out(rows)
    return out


@torch.no_grad()
@pytest.mark.parametrize("kind", [NoPosition, Distance])
def test_it_is_the_softmax_over_this_and_earlier_positions(kind: type[Position]) -> None:
    layer, x, position = attention(), torch.randn(LENGTH, WIDTH), kind(NoOptions(), SIZES)
    out = layer(x[None], scope_of(position))
    torch.testing.assert_close(out[0], written_out(layer, x, position))


@torch.no_grad()
def test_a_bias_of_zero_changes_nothing() -> None:
    layer, x = attention(), torch.randn(3, LENGTH, WIDTH)
    plain = layer(x, scope_of(NO_POSITION))
    biased = layer(x, scope_of(ZeroBias(NoOptions(), SIZES)))
    torch.testing.assert_close(biased, plain)


def test_with_a_bias_the_future_has_a_gradient_of_exactly_zero() -> None:
    layer, x = attention(), torch.randn(2, LENGTH, WIDTH, requires_grad=True)
    out = layer(x, scope_of(Distance(NoOptions(), SIZES)))
    (gradient,) = torch.autograd.grad(out[:, 2].sum(), x)
    assert torch.count_nonzero(gradient[:, 3:]) == 0
    assert torch.count_nonzero(gradient[:, :3]) == 2 * 3 * WIDTH


@torch.no_grad()
def test_the_first_position_sees_only_its_own_value() -> None:
    layer, x = attention(), torch.randn(2, LENGTH, WIDTH)
    out = layer(x, scope_of(NO_POSITION))
    torch.testing.assert_close(out[:, 0], layer.out(layer.value(x[:, 0])))


@pytest.mark.parametrize("at", range(16))
def test_no_position_of_the_model_sees_the_future(at: int) -> None:
    assert_causal(tiny_model(), torch.randint(65, (2, 16)), at)


def test_scores_and_mixing_cost_two_square_products() -> None:
    assert attention().flops(LENGTH) == 2 * (2 * HEADS * LENGTH * LENGTH * HEAD)


@pytest.mark.parametrize("name", names("attention"))
def test_every_attention_says_what_it_costs(name: str) -> None:
    known = component("attention", name)
    layer: Attention = known.build(known.options(), ATTENTION_SIZES)
    assert layer.flops(16) > 0
