"""Feed-forward layers: values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from lm_experiments.model.feedforward import FeedForward, Gated
from lm_experiments.model.projection import RESIDUAL_ROLES
from lm_experiments.registry import component, names

# down(f(up(x))) or down(f(gate(x)) * up(x)) with every weight 1: values at x = -1 and x = 2.
UNIT_WEIGHTS = {
    "relu": (0.0, 2.0),
    "gelu": (-0.158655, 1.954500),
    "silu": (-0.268941, 1.761594),
    "relu2": (0.0, 4.0),
    "glu": (-0.268941, 1.761594),
    "bilinear": (1.0, 4.0),
    "swiglu": (0.268941, 3.523188),
    "geglu": (0.158655, 3.908999),
    "reglu": (0.0, 4.0),
}

# The gated ones with gate 0.5, up 3 and down 7 at x = 2: 7 * f(1) * 6.
GATE_AND_UP = {
    "glu": 42 * 0.731059,
    "bilinear": 42.0,
    "swiglu": 42 * 0.731059,
    "geglu": 42 * 0.841345,
    "reglu": 42.0,
}

# And with gate -0.5: 7 * f(-1) * 6, which tells apart what f was applied to.
NEGATIVE_GATE = {
    "glu": 42 * 0.268941,
    "bilinear": -42.0,
    "swiglu": 42 * -0.268941,
    "geglu": 42 * -0.158655,
    "reglu": 0.0,
}


def layer(
    name: str, d_model: int = 1, width: int = 1, bias: bool = False, **options: str
) -> FeedForward:
    found = component("ffn", name)
    built: FeedForward = found.build(found.options(**options), d_model, width, bias)
    return built


@torch.no_grad()
def value(ffn: FeedForward, x: float, **weights: float) -> float:
    for name, module in ffn.named_children():
        module.weight.fill_(weights.get(name, 1.0))  # type: ignore[operator]
    return float(ffn(torch.tensor([[x]])))


@pytest.mark.parametrize("name", UNIT_WEIGHTS)
def test_formula_with_unit_weights(name: str) -> None:
    ffn = layer(name)
    assert (value(ffn, -1.0), value(ffn, 2.0)) == pytest.approx(UNIT_WEIGHTS[name], abs=2e-6)


@pytest.mark.parametrize("name", GATE_AND_UP)
def test_the_activation_is_on_the_gate(name: str) -> None:
    ffn = layer(name)
    positive = value(ffn, 2.0, gate=0.5, up=3.0, down=7.0)
    negative = value(ffn, 2.0, gate=-0.5, up=3.0, down=7.0)
    assert positive == pytest.approx(GATE_AND_UP[name], rel=1e-5)
    assert negative == pytest.approx(NEGATIVE_GATE[name], rel=1e-5)


@pytest.mark.parametrize("name", names("ffn"))
def test_every_feed_forward_is_made_of_the_matrices_it_declares(name: str) -> None:
    ffn = layer(name, d_model=6, width=10)
    assert sum(p.numel() for p in ffn.parameters()) == ffn.matrices * 6 * 10
    assert ffn(torch.randn(2, 3, 6)).shape == (2, 3, 6)


@pytest.mark.parametrize("name", names("ffn"))
def test_every_feed_forward_works_at_each_position_alone(name: str) -> None:
    ffn = layer(name, d_model=6, width=10)
    x = torch.randn(1, 5, 6)
    torch.testing.assert_close(ffn(x)[:, 2], ffn(x[:, 2]))


@pytest.mark.parametrize("name", names("ffn"))
def test_biases_are_there_when_asked_for(name: str) -> None:
    ffn = layer(name, d_model=6, width=10, bias=True)
    biases = {n: p.shape[0] for n, p in ffn.named_parameters() if n.endswith("bias")}
    gate = {"gate.bias": 10} if isinstance(ffn, Gated) else {}
    assert biases == {**gate, "up.bias": 10, "down.bias": 6}


@pytest.mark.parametrize("name", names("ffn"))
def test_only_the_last_matrix_writes_to_the_residual_stream(name: str) -> None:
    roles = {child: module.role for child, module in layer(name).named_children()}
    assert [child for child, role in roles.items() if role in RESIDUAL_ROLES] == ["down"]


def tanh_gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("x", [-1.0, 2.0])
def test_gelu_by_tanh_is_not_the_exact_one(x: float) -> None:
    approximate, exact = layer("gelu", approximate="tanh"), layer("gelu")
    assert value(approximate, x) == pytest.approx(tanh_gelu(x), abs=1e-6)
    assert abs(value(approximate, x) - value(exact, x)) > 5e-5
    gated = layer("geglu", approximate="tanh")
    assert value(gated, x) == pytest.approx(tanh_gelu(x) * x, abs=1e-6)


def test_an_approximation_of_gelu_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"approximate=erf is not known; it can be none, tanh"):
        layer("geglu", approximate="erf")
