"""Gradients and the residual stream before training, as depth grows (Xiong et al. 2020).

Their claims: the gradient of the last feed-forward shrinks as 1/sqrt(layers) with norms before the
sublayers, and does not depend on depth with norms after them.

The set-up is that of their analysis: ReLU, normal Xavier weights, a stream that starts with
variance 1, LayerNorm; here width and feed-forward width 128, four heads, a vocabulary of 512, no
positions, four sequences of 64 random tokens, the mean loss, three seeds averaged.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import nn

from lm_experiments.model import Choice, ModelConfig, Transformer, build_model, choose

SEEDS = range(3)
DEPTHS = (6, 12, 24, 48)


def ready_model(placement: str, n_layers: int, seed: int) -> Transformer:
    config = ModelConfig(
        d_model=128,
        d_ff=128,
        n_layers=n_layers,
        n_heads=4,
        context_length=64,
        vocab_size=512,
        norm=Choice("layernorm"),
        placement=Choice(placement),
        ffn=Choice("relu"),
        position=Choice("none"),
        init=choose("init", "xavier", {"distribution": "normal"}),
    )
    model = build_model(config, seed)
    nn.init.normal_(model.embedding.weight, generator=torch.Generator().manual_seed(seed))
    return model


@cache
def last_gradient(placement: str, n_layers: int) -> float:
    """Return the gradient norm of the last feed-forward, averaged over the seeds."""
    norms = []
    for seed in SEEDS:
        model = ready_model(placement, n_layers, seed)
        tokens = torch.randint(512, (4, 65), generator=torch.Generator().manual_seed(seed))
        loss = model.loss(tokens[:, :-1], tokens[:, 1:]) / 256
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in model.blocks[-1].ffn.parameters()]  # type: ignore[union-attr]
        norms.append(math.hypot(*(float(g.norm()) for g in gradients if g is not None)))
    return sum(norms) / len(norms)


def assert_constant(values: list[float]) -> None:
    mean = sum(values) / len(values)
    assert values == pytest.approx([mean] * len(values), rel=0.1), values


def test_the_last_gradient_shrinks_as_the_root_of_depth_with_norms_before() -> None:
    assert_constant([last_gradient("pre", depth) * math.sqrt(depth) for depth in DEPTHS])
    assert last_gradient("pre", 6) > 2.5 * last_gradient("pre", 48)


@pytest.mark.slow
def test_the_last_gradient_does_not_depend_on_depth_with_norms_after() -> None:
    assert_constant([last_gradient("post", depth) for depth in DEPTHS])


@torch.no_grad()
def stream_variance(n_layers: int, seed: int) -> float:
    """Return the variance of the stream after the last block, attention writing nothing."""
    model = ready_model("pre", n_layers, seed)
    for block in model.blocks:
        block.attention.out.weight.zero_()  # type: ignore[union-attr, operator]
    seen: list[float] = []
    model.blocks[-1].register_forward_hook(
        lambda module, inputs, output: seen.append(output.var().item())
    )
    model(torch.arange(256).view(4, 64))
    return seen[0]


@pytest.mark.parametrize("n_layers", DEPTHS)
def test_each_feed_forward_adds_half_to_the_variance_of_the_stream(n_layers: int) -> None:
    found = sum(stream_variance(n_layers, seed) for seed in SEEDS) / len(SEEDS)
    assert found == pytest.approx(1 + n_layers / 2, rel=0.1)
