"""Layouts: packing and unpacking are exact inverses, and match the Hugging Face layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lm_experiments.interop.layouts import (
    BY_HEAD,
    SAME,
    STACKED,
    TRANSPOSED,
    Layout,
    halves_from_pairs,
)
from lm_experiments.model.positions import PositionSizes
from lm_experiments.registry import build, choose

HEADS, WIDTH, D_MODEL = 3, 4, 10


@pytest.mark.parametrize("layout", [SAME, TRANSPOSED, STACKED, BY_HEAD])
@pytest.mark.parametrize("shape", [(HEADS * WIDTH, D_MODEL), (HEADS * WIDTH,)])
def test_what_is_packed_is_unpacked(layout: Layout, shape: tuple[int, ...]) -> None:
    parts = [torch.randn(shape) for _ in range(1 if layout in (SAME, TRANSPOSED) else 3)]
    unpacked = layout.unpack(layout.pack(parts, HEADS), HEADS)
    assert len(unpacked) == len(parts)
    assert all(torch.equal(a, b) for a, b in zip(parts, unpacked, strict=True))


def test_stacked_gives_queries_keys_and_values_one_after_the_other() -> None:
    parts = torch.randn(3, HEADS * WIDTH, D_MODEL, dtype=torch.float64)
    x = torch.randn(5, D_MODEL, dtype=torch.float64)
    packed = STACKED.pack([*parts], HEADS)
    assert torch.allclose(x @ packed, torch.cat([x @ part.T for part in parts], -1))


def test_by_head_gives_each_head_its_query_key_and_value() -> None:
    parts = torch.randn(3, HEADS * WIDTH, D_MODEL, dtype=torch.float64)
    x = torch.randn(5, D_MODEL, dtype=torch.float64)
    packed = F.linear(x, BY_HEAD.pack([*parts], HEADS)).view(5, HEADS, 3, WIDTH)
    for place, part in enumerate(parts):
        assert torch.allclose(packed[:, :, place].flatten(1), F.linear(x, part))


def test_pairs_that_lie_side_by_side_become_halves() -> None:
    assert halves_from_pairs(torch.arange(8), 8, 6).tolist() == [0, 2, 4, 1, 3, 5, 6, 7]
    assert halves_from_pairs(torch.arange(8), 4, 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_reordered_rows_give_the_same_scores_under_the_other_pairing() -> None:
    sizes = PositionSizes(HEADS * 6, HEADS, 6, 16)
    positions = torch.arange(16)
    x = torch.randn(1, 16, HEADS * 6, dtype=torch.float64).float()
    query, key = (torch.randn(HEADS * 6, HEADS * 6) for _ in range(2))

    def scores(pairing: str, *weights: torch.Tensor) -> torch.Tensor:
        rope = build("position", choose("position", "rope", {"pairing": pairing}), sizes)
        phases = rope.phases(positions)
        split = [F.linear(x, w).view(1, 16, HEADS, 6).transpose(1, 2) for w in weights]
        turned_query, turned_key = (rope.rotate(part, phases) for part in split)
        return turned_query @ turned_key.transpose(-1, -2)

    paired = scores("interleaved", query, key)
    halved = scores("half", *(halves_from_pairs(weight, 6, 6) for weight in (query, key)))
    assert torch.allclose(paired, halved, atol=1e-4)
    assert not torch.allclose(paired, scores("half", query, key), atol=1e-2)
