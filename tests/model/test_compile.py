"""Compiled models compute the same as eager ones, with few recompilations."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from small_models import TINY, tiny_batch
from torch import Tensor
from torch._dynamo.utils import counters

from lm_experiments.model import Choice, Transformer, build_model, choose

SAMPLE: list[dict[str, Any]] = [
    {},
    {
        "placement": Choice("parallel"),
        "attention": choose("attention", "sliding", {"qk_norm": "rmsnorm"}),
        "attention_pattern": ["local", "global"],
        "position": Choice("t5"),
    },
    {
        "placement": Choice("deepnorm"),
        "attention": choose("attention", "grouped", {"softcap": 5.0}),
        "position": choose("position", "rope", {"pairing": "half", "fraction": 0.5}),
        "document_mask": True,
        "end_of_text": 3,
        "norm": Choice("layernorm"),
        "ffn": Choice("geglu"),
        "bias": True,
    },
]


def loss_and_gradients(model: Transformer, length: int) -> list[Tensor]:
    torch.manual_seed(1)
    inputs, targets = tiny_batch(3)
    loss = model.loss(inputs[:, :length], targets[:, :length])
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.slow
@pytest.mark.parametrize("changes", SAMPLE, ids=range(len(SAMPLE)))
def test_lengths_8_16_8_equal_eager_with_at_most_two_recompilations(
    changes: dict[str, Any],
) -> None:
    torch._dynamo.reset()
    counters.clear()
    config = dataclasses.replace(TINY, **changes)
    eager, compiled = build_model(config, 0), build_model(config, 0)
    compiled.compile()
    for length in (8, 16, 8):
        expected = loss_and_gradients(eager, length)
        found = loss_and_gradients(compiled, length)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    # One graph is the first compilation; layers of two kinds need one each.
    kinds = len({block.attention.window for block in compiled.blocks})  # type: ignore[union-attr]
    assert 1 <= counters["stats"]["unique_graphs"] <= kinds * 3
    torch._dynamo.reset()
