"""How models without norms start, at the width of the course's base model.

A gated feed-forward multiplies two linear maps of its input, so that without norms the stream
grows faster with every layer; an ungated one only adds.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from lm_experiments.model import Choice, ModelConfig, Transformer, build_model


def loss_at_start(ffn: str, n_layers: int) -> tuple[Transformer, torch.Tensor]:
    config = ModelConfig(
        d_model=512,
        n_layers=n_layers,
        n_heads=16,
        context_length=64,
        vocab_size=10_000,
        d_ff=2016,
        norm=Choice("none"),
        ffn=Choice(ffn),
    )
    model = build_model(config, 0)
    tokens = torch.randint(10_000, (1, 65), generator=torch.Generator().manual_seed(0))
    return model, model.loss(tokens[:, :-1], tokens[:, 1:]) / 64


@cache
@torch.no_grad()
def loss(ffn: str, n_layers: int) -> float:
    return float(loss_at_start(ffn, n_layers)[1])


def test_a_gated_feed_forward_starts_with_a_loss_of_millions_at_6_layers() -> None:
    assert 12 < loss("swiglu", 4) < 25
    assert 1e5 < loss("swiglu", 6) < 1e7


def test_a_gated_feed_forward_overflows_at_8_layers() -> None:
    model, start = loss_at_start("swiglu", 8)
    start.backward()  # type: ignore[no-untyped-call]
    squares = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
    assert not squares < float("inf")


@pytest.mark.parametrize(("n_layers", "nats"), [(4, 9.6), (6, 14), (8, 33)])
def test_an_ungated_feed_forward_starts_with_a_loss_of_tens(n_layers: int, nats: float) -> None:
    assert loss("silu", n_layers) == pytest.approx(nats, rel=0.2)
