"""Sizes that cannot be built are refused, with what to type instead."""

from __future__ import annotations

from typing import Any

import pytest

from lm_experiments.model import ModelConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"d_model": 64, "n_heads": 5},
            r"model.n_heads=5 does not divide model.d_model=64 \(64 % 5 = 4\); "
            "type model.n_heads=4",
        ),
        ({"n_heads": 0}, "model.n_heads=0 must be at least 1"),
        ({"d_model": -8}, "model.d_model=-8 must be at least 1"),
        ({"n_layers": 0}, "model.n_layers=0 must be at least 1"),
        ({"context_length": 0}, "model.context_length=0 must be at least 1"),
        ({"vocab_size": 0}, "model.vocab_size=0 must be at least 1"),
        ({"d_ff": 0}, "model.d_ff=0 must be at least 1"),
        ({"ffn_width": 0}, "model.ffn_width=0 must be at least 1, or null"),
        ({"match": "flop"}, "model.match=flop is not known; it can be params or flops or none"),
    ],
)
def test_impossible_sizes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(**changes)


def test_the_width_of_a_head() -> None:
    assert ModelConfig(d_model=512, n_heads=16).width_of_head == 32
