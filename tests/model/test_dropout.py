"""Dropout acts in training only, and is reproducible from the global seed."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from lm_experiments.model import ModelConfig, build_model

CONFIG = ModelConfig(d_model=32, n_layers=2, n_heads=2, context_length=16, vocab_size=65, d_ff=96)
TOKENS = torch.arange(32).reshape(2, 16)


def logits(dropout: float, seed: int, training: bool = True) -> torch.Tensor:
    model = build_model(dataclasses.replace(CONFIG, dropout=dropout), seed=0).train(training)
    torch.manual_seed(seed)
    with torch.no_grad():
        out: torch.Tensor = model(TOKENS)
    return out


def test_dropout_follows_the_seed_and_is_off_in_evaluation() -> None:
    assert torch.equal(logits(0.5, seed=1), logits(0.5, seed=1))
    assert not torch.equal(logits(0.5, seed=1), logits(0.5, seed=2))
    assert torch.equal(logits(0.5, 1, training=False), logits(0.0, 2))


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_rates_out_of_range_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"model\.dropout"):
        dataclasses.replace(CONFIG, dropout=rate)
