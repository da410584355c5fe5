"""Norms: values computed by hand, float32 statistics for any dtype, and the eps option."""

from __future__ import annotations

import math

import pytest
import torch

from lm_experiments.model.norms import (
    DyT,
    DyTOptions,
    LayerNorm,
    LayerNormOptions,
    NoNorm,
    Norm,
    NormOptions,
    PlainLayerNorm,
    RMSNorm,
    RMSNormOptions,
    ScaleNorm,
    ScaleNormOptions,
)
from lm_experiments.registry import NoOptions, component, names


def rms_norm(width: int, eps: float = 1e-5) -> RMSNorm:
    norm = RMSNorm(NormOptions(eps), width)
    norm.reset_parameters()
    return norm


def test_rms_norm_of_three_and_four() -> None:
    norm = rms_norm(2)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0]))
    expected = [3 / math.sqrt(12.5 + 1e-5), 8 / math.sqrt(12.5 + 1e-5)]
    assert norm(torch.tensor([3.0, 4.0])).tolist() == pytest.approx(expected, rel=1e-6)


def test_rms_norm_starts_as_gain_one_without_bias() -> None:
    parameters = dict(rms_norm(8).named_parameters())
    assert list(parameters) == ["weight"]
    assert torch.equal(parameters["weight"], torch.ones(8))


def test_layer_norm_starts_as_gain_one_and_shift_zero() -> None:
    norm = LayerNorm(NormOptions(), 8)
    norm.reset_parameters()
    parameters = dict(norm.named_parameters())
    assert torch.equal(parameters["weight"], torch.ones(8))
    assert torch.equal(parameters["bias"], torch.zeros(8))


def test_layer_norm_of_one_and_three() -> None:
    norm = LayerNorm(NormOptions(), 2)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0]))
        norm.bias.copy_(torch.tensor([0.0, 5.0]))
    unit = 1 / math.sqrt(1 + 1e-5)
    assert norm(torch.tensor([1.0, 3.0])).tolist() == pytest.approx([-unit, 5 + 2 * unit])


def test_no_norm_is_the_identity_and_has_no_parameters() -> None:
    norm = NoNorm(NoOptions(), 4)
    x = torch.randn(3, 4)
    assert norm(x) is x
    assert list(norm.parameters()) == []


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "layernorm_plain", "scalenorm"])
def test_the_default_epsilon_is_one_hundred_thousandth(name: str) -> None:
    assert component("norm", name).defaults()["eps"] == 1e-5


@pytest.mark.parametrize(("eps", "scale"), [(1e-5, 17.216), (2**-7, 9.459)])
def test_the_epsilon_asked_for_is_the_one_used(eps: float, scale: float) -> None:
    x = torch.full((64,), 0.058)
    assert (rms_norm(64, eps)(x) / x).mean().item() == pytest.approx(scale, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_inputs_come_out_as_large_in_bfloat16_as_in_float32(dtype: torch.dtype) -> None:
    x = 0.058 * torch.randn(512, 256)
    size = rms_norm(256).to(dtype)(x.to(dtype)).float().square().mean().sqrt()
    assert size.item() == pytest.approx(0.9985, abs=2e-4)


def test_squares_beyond_the_range_of_half_precision_do_not_overflow() -> None:
    x = torch.tensor([300.0, -400.0], dtype=torch.float16)
    out = rms_norm(2).half()(x)
    assert out.tolist() == pytest.approx([0.8485, -1.1314], abs=1e-3)


@pytest.mark.parametrize("name", names("norm"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_norm_keeps_shape_and_dtype(name: str, dtype: torch.dtype) -> None:
    known = component("norm", name)
    norm = known.build(known.options(), 8)
    if hasattr(norm, "reset_parameters"):
        norm.reset_parameters()
    out = norm(torch.randn(2, 3, 8).to(dtype))
    assert out.shape == (2, 3, 8)
    assert out.dtype == dtype
    assert out.isfinite().all()


def set_parameters(norm: Norm, **values: list[float]) -> None:
    """Set the named parameters; the norm has these and no others."""
    parameters = dict(norm.named_parameters())
    assert set(parameters) == set(values)
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(torch.tensor(value))


def test_rms_norm_with_an_offset_is_the_one_whose_gain_is_that_much_more() -> None:
    plain, offset = rms_norm(2), RMSNorm(RMSNormOptions(offset=True), 2)
    offset.reset_parameters()
    assert torch.equal(offset.weight, torch.zeros(2))
    set_parameters(plain, weight=[1.25, 0.5])
    set_parameters(offset, weight=[0.25, -0.5])
    x, y = (torch.tensor([[3.0, 4.0], [-1.0, 2.0]], requires_grad=True) for _ in range(2))
    assert torch.equal(plain(x), offset(y))
    for norm, point in ((plain, x), (offset, y)):
        (norm(point) * torch.tensor([1.0, 3.0])).sum().backward()
    assert plain.weight.grad is not None and offset.weight.grad is not None
    assert torch.equal(plain.weight.grad, offset.weight.grad)
    assert x.grad is not None and y.grad is not None
    assert torch.equal(x.grad, y.grad)
    with torch.no_grad():
        torch.testing.assert_close(offset(y), plain(x))


def test_an_offset_keeps_what_bfloat16_cannot_hold_beside_one() -> None:
    norm = RMSNorm(RMSNormOptions(offset=True), 1).bfloat16()
    set_parameters(norm, weight=[0.001])
    assert norm(torch.ones(1)).item() == pytest.approx(1.001, abs=2e-5)


@pytest.mark.parametrize(("gain", "shift"), [(True, False), (False, True), (False, False)])
def test_layer_norm_without_gain_or_shift_is_the_one_with_the_trivial_ones(
    gain: bool, shift: bool
) -> None:
    norm, full = LayerNorm(LayerNormOptions(gain=gain, shift=shift), 8), LayerNorm(NormOptions(), 8)
    norm.reset_parameters()
    full.reset_parameters()
    assert (norm.weight is None, norm.bias is None) == (not gain, not shift)
    with torch.no_grad():
        for name, parameter in norm.named_parameters():
            parameter.add_(torch.randn(8))
            full.get_parameter(name).copy_(parameter)
    x = torch.randn(3, 8)
    torch.testing.assert_close(norm(x), full(x))


def test_the_plain_layer_norm_has_nothing_to_train() -> None:
    norm = PlainLayerNorm(NormOptions(), 2)
    assert list(norm.parameters()) == []
    unit = 1 / math.sqrt(1 + 1e-5)
    assert norm(torch.tensor([1.0, 3.0])).tolist() == pytest.approx([-unit, unit])


def test_scale_norm_of_three_and_four() -> None:
    norm = ScaleNorm(ScaleNormOptions(), 2)
    norm.reset_parameters()
    assert norm.length.item() == pytest.approx(math.sqrt(2))
    set_parameters(norm, length=[10.0])
    assert norm(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([6.0, 8.0])
    assert norm(torch.zeros(2)).tolist() == [0.0, 0.0]


def test_scale_norm_starts_as_rms_norm_does() -> None:
    norm = ScaleNorm(ScaleNormOptions(), 64)
    norm.reset_parameters()
    x = torch.randn(4, 64)
    torch.testing.assert_close(norm(x), rms_norm(64, 1e-12)(x))


def test_dyt_by_hand() -> None:
    norm = DyT(DyTOptions(), 2)
    norm.reset_parameters()
    assert norm(torch.tensor([1.0, -2.0])).tolist() == pytest.approx(
        [math.tanh(0.5), math.tanh(-1.0)]
    )
    set_parameters(norm, alpha=[2.0], weight=[3.0, 1.0], bias=[0.0, 5.0])
    expected = [3 * math.tanh(2.0), math.tanh(-4.0) + 5]
    assert norm(torch.tensor([1.0, -2.0])).tolist() == pytest.approx(expected)


def test_the_slope_dyt_starts_with_is_an_option() -> None:
    norm = DyT(DyTOptions(alpha=0.8), 2)
    norm.reset_parameters()
    assert norm.alpha.item() == pytest.approx(0.8)
    with pytest.raises(ValueError, match=r"model.norm.alpha=0 must be positive"):
        DyTOptions(alpha=0.0)


@pytest.mark.parametrize("name", names("norm"))
def test_every_norm_is_cast_once_in_bfloat16(name: str) -> None:
    known = component("norm", name)
    norm = known.build(known.options(), 64)
    if hasattr(norm, "reset_parameters"):
        norm.reset_parameters()
    x = (3 * torch.randn(64, 64)).bfloat16()
    exact = norm(x.float()).bfloat16()
    assert (norm.bfloat16()(x) == exact).double().mean() > 0.99
