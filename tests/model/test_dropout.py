"""Dropout acts in training only; its masks are keyed by step and position in the batch."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from lm_experiments.model import ModelConfig, build_model
from lm_experiments.model.dropout import Dropout, DropoutKey

CONFIG = ModelConfig(d_model=32, n_layers=2, n_heads=2, context_length=16, vocab_size=65, d_ff=96)
TOKENS = torch.arange(64).reshape(4, 16)
CPU = torch.device("cpu")


def logits(
    dropout: float, key: int | None, first: int = 0, rows: slice = slice(None), train: bool = True
) -> torch.Tensor:
    model = build_model(dataclasses.replace(CONFIG, dropout=dropout), seed=0).train(train)
    if key is not None:
        model.dropout_key.set(key, first, CPU)
    with torch.no_grad():
        out: torch.Tensor = model(TOKENS[rows])
    return out


def masks(key: int, layer: int = 1, first: int = 0, rate: float = 0.1) -> torch.Tensor:
    """Which elements of (64, 64, 64) are zeroed."""
    shared = DropoutKey()
    shared.set(key, first, CPU)
    return Dropout(rate, layer, shared)(torch.ones(64, 64, 64)) == 0


def test_dropout_follows_the_key_and_is_off_in_evaluation() -> None:
    assert torch.equal(logits(0.5, key=1), logits(0.5, key=1))
    assert not torch.equal(logits(0.5, key=1), logits(0.5, key=2))
    assert torch.equal(logits(0.5, 1, train=False), logits(0.0, 2))


def test_without_a_key_masks_come_from_the_global_generator() -> None:
    torch.manual_seed(1)
    first = logits(0.5, None)
    assert not torch.equal(first, logits(0.5, None))
    torch.manual_seed(1)
    assert torch.equal(first, logits(0.5, None))


def test_parts_of_a_batch_are_dropped_as_in_the_whole_batch() -> None:
    whole = logits(0.5, key=7)
    for size in (1, 2, 3):
        parts = [logits(0.5, 7, at, slice(at, at + size)) for at in range(0, 4, size)]
        torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=1e-5)


def test_kept_elements_are_scaled_so_that_the_mean_stays() -> None:
    key = DropoutKey()
    key.set(3, 0, CPU)
    out = Dropout(0.25, 0, key)(torch.ones(64, 64, 64))
    assert out.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert out.mean().item() == pytest.approx(1, abs=0.005)


def test_masks_of_steps_layers_sequences_and_neighbours_are_uncorrelated() -> None:
    mask = masks(5).double() - 0.1
    others = [masks(6), masks(5 + (1 << 20)), masks(5, layer=2), masks(5, first=64)]
    shifted = [mask.roll(1, dims=axis) for axis in range(3)]
    # The standard error of a correlation over 64^3 elements is 0.002.
    for other in [*(found.double() - 0.1 for found in others), *shifted]:
        assert abs((mask * other).mean().item()) / 0.09 < 0.009
    assert mask.mean().item() == pytest.approx(0, abs=0.003)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_rates_out_of_range_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"model\.dropout"):
        dataclasses.replace(CONFIG, dropout=rate)
