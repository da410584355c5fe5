"""The block formula, and every norm placement."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from small_models import tiny_config, tiny_model
from torch import Tensor, nn

from lm_experiments.model.attention_kernels import attention_context
from lm_experiments.model.block import Placement, Residual
from lm_experiments.model.documents import locate
from lm_experiments.model.norms import Norm
from lm_experiments.model.transformer import NO_POSITION, sketch_model
from lm_experiments.registry import names


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


@pytest.mark.parametrize(
    ("placement", "norms"),
    [
        ("pre", 5),
        ("post", 4),
        ("peri", 9),
        ("reordered", 5),
        ("parallel", 3),
        ("parallel_two", 5),
        ("deepnorm", 4),
    ],
)
def test_number_of_norms_in_two_layers(placement: str, norms: int) -> None:
    model = sketch_model(tiny_config(placement=placement))
    assert sum(isinstance(module, Norm) for module in model.modules()) == norms


# One layer, two sublayers: the factor of the stream in DeepNorm is (2 * 2)^(1/4) of two layers.
DEEP = 4**0.25


def two_steps(step: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the block that takes the step with attention, then with the feed-forward."""
    return lambda x, attention, ffn, norm: step(step(x, attention, norm), ffn, norm)


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "pre": two_steps(lambda x, f, norm: x + f(norm(x))),
    "post": two_steps(lambda x, f, norm: norm(x + f(x))),
    "peri": two_steps(lambda x, f, norm: x + norm(f(norm(x)))),
    "reordered": two_steps(lambda x, f, norm: x + norm(f(x))),
    "deepnorm": two_steps(lambda x, f, norm: norm(DEEP * x + f(x))),
    "parallel": lambda x, attention, ffn, norm: x + attention(norm(x)) + ffn(norm(x)),
    "parallel_two": lambda x, attention, ffn, norm: x + attention(norm(x)) + ffn(norm(x)),
}


@torch.no_grad()
@pytest.mark.parametrize("placement", names("placement"))
def test_a_block_is_its_formula(placement: str) -> None:
    model = tiny_model(placement=placement, position="none", norm="layernorm")
    block, x = model.blocks[0], torch.randn(2, 16, 32)
    seen = attention_context(model.position, None, locate(torch.zeros(2, 16, dtype=torch.long)), 16)

    def norm(x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (32,), eps=1e-5)

    def attention(x: Tensor) -> Tensor:
        out: Tensor = block.attention(x, seen)  # type: ignore[operator]
        return out

    expected = FORMULAS[placement](x, attention, block.ffn, norm)
    torch.testing.assert_close(block(x, seen), expected)


@torch.no_grad()
def test_one_norm_of_a_parallel_block_serves_both_and_two_serve_one_each() -> None:
    x = torch.randn(2, 16, 32)
    for placement, both in (("parallel", True), ("parallel_two", False)):
        block = tiny_model(placement=placement, position="none").blocks[0]
        seen = attention_context(
            NO_POSITION, None, locate(torch.zeros(2, 16, dtype=torch.long)), 16
        )
        attention = block.attention(block.attention_residual.in_norm(x), seen)
        before = block(x, seen) - x - attention
        block.attention_residual.in_norm.weight.fill_(0)
        # Attention then reads zeros and mixes them to zeros, as it has no biases.
        after = block(x, seen) - x
        assert torch.equal(after, torch.zeros_like(after)) == both
        if not both:
            torch.testing.assert_close(after, before, atol=1e-5, rtol=0)


@torch.no_grad()
def test_pre_ends_in_a_stream_of_unit_size_and_post_does_too() -> None:
    tokens = torch.randint(65, (4, 16))
    for placement in ("pre", "post"):
        size = tiny_model(placement=placement).hidden(tokens).square().mean(-1).sqrt()
        torch.testing.assert_close(size, torch.ones(4, 16), atol=1e-3, rtol=0)
