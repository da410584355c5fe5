"""The residual algebra, and the placements that are points of it."""

from __future__ import annotations

import itertools

import pytest
import torch
from small_models import tiny_config, tiny_model
from torch import Tensor, nn

from lm_experiments.model.backends import scope
from lm_experiments.model.block import PLACEMENTS, Placement, Residual
from lm_experiments.model.documents import locate
from lm_experiments.model.norms import Norm
from lm_experiments.model.transformer import sketch_model


class Scale(nn.Module):
    """A stand-in for a norm that tells where it was applied."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


@pytest.mark.parametrize("slots", list(itertools.product((False, True), repeat=3)))
def test_each_norm_stands_in_its_place(slots: tuple[bool, bool, bool]) -> None:
    factors = [factor for factor, filled in zip((2.0, 3.0, 5.0), slots, strict=True) if filled]
    scales = iter(factors)
    residual = Residual(Placement(*slots), lambda: Scale(next(scales)))
    enter, inner, leave = (
        factor if filled else 1.0 for factor, filled in zip((2.0, 3.0, 5.0), slots, strict=True)
    )
    out = residual(torch.tensor([7.0]), lambda h: h + 11)
    assert out.item() == leave * (7 + inner * (enter * 7 + 11))
    assert next(scales, None) is None


def test_pre_and_post_fill_the_places_of_their_papers() -> None:
    assert PLACEMENTS["pre"][1] == Placement(in_norm=True, final_norm=True)
    assert PLACEMENTS["post"][1] == Placement(out_norm=True)


@pytest.mark.parametrize(("placement", "norms"), [("pre", 5), ("post", 4)])
def test_number_of_norms_in_two_layers(placement: str, norms: int) -> None:
    model = sketch_model(tiny_config(placement=placement))
    assert sum(isinstance(module, Norm) for module in model.modules()) == norms


def test_pre_has_one_final_norm_and_post_has_none() -> None:
    assert isinstance(sketch_model(tiny_config(placement="pre")).final_norm, Norm)
    assert sketch_model(tiny_config(placement="post")).final_norm is None


@torch.no_grad()
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_block_is_its_formula(placement: str) -> None:
    model = tiny_model(placement=placement, position="none", norm="layernorm")
    block, x = model.blocks[0], torch.randn(2, 16, 32)
    seen = scope(model.position, None, locate(torch.zeros(2, 16, dtype=torch.long)), 16)

    def norm(x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (32,), eps=1e-5)

    def attention(x: Tensor) -> Tensor:
        out: Tensor = block.attention(x, seen)  # type: ignore[operator]
        return out

    def ffn(x: Tensor) -> Tensor:
        out: Tensor = block.ffn(x)  # type: ignore[operator]
        return out

    if placement == "pre":
        middle = x + attention(norm(x))
        expected = middle + ffn(norm(middle))
    else:
        middle = norm(x + attention(x))
        expected = norm(middle + ffn(middle))
    torch.testing.assert_close(block(x, seen), expected)


@torch.no_grad()
def test_pre_ends_in_a_stream_of_unit_size_and_post_does_too() -> None:
    tokens = torch.randint(65, (4, 16))
    for placement in ("pre", "post"):
        size = tiny_model(placement=placement).hidden(tokens).square().mean(-1).sqrt()
        torch.testing.assert_close(size, torch.ones(4, 16), atol=1e-3, rtol=0)
