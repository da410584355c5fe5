"""Which parameters are decayed, how gradients are clipped, and what the optimizer is given."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from lm_experiments.model import Choice, ModelConfig, Transformer, build_model
from lm_experiments.model.registry import names
from lm_experiments.training.optimizers import AdamW, clip_gradients, parameter_groups


def small_model(**changes: object) -> Transformer:
    config = ModelConfig(
        d_model=32,
        n_layers=2,
        n_heads=2,
        context_length=16,
        vocab_size=65,
        d_ff=128,
        **changes,  # type: ignore[arg-type]
    )
    return build_model(config, 0)


def decay_by_name(model: nn.Module) -> dict[str, float]:
    """Return each parameter's decay by its name; a parameter in two groups is an error."""
    decays: dict[int, float] = {}
    for group in parameter_groups(model, 0.1):
        for parameter in group["params"]:
            assert id(parameter) not in decays
            decays[id(parameter)] = group["weight_decay"]
    assert len(decays) == len(list(model.parameters()))
    return {name: decays[id(parameter)] for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("norm", names("norm"))
@pytest.mark.parametrize("position", names("position"))
@pytest.mark.parametrize("bias", [False, True])
def test_matrices_are_decayed_and_vectors_never(norm: str, position: str, bias: bool) -> None:
    model = small_model(norm=Choice(norm), position=Choice(position), bias=bias)
    shapes = {name: parameter.dim() for name, parameter in model.named_parameters()}
    for name, decay in decay_by_name(model).items():
        assert decay == (0.1 if shapes[name] >= 2 else 0.0), name


def test_the_rule_by_example() -> None:
    decays = decay_by_name(small_model(norm=Choice("layernorm"), bias=True))
    assert decays["embedding.weight"] == decays["head.weight"] == 0.1
    assert decays["blocks.0.attention.query.weight"] == 0.1
    assert decays["blocks.0.attention.query.bias"] == 0.0
    assert decays["final_norm.weight"] == decays["final_norm.bias"] == 0.0


def test_a_tied_weight_is_optimised_once() -> None:
    model = small_model(tie_embeddings=True)
    optimizer = AdamW().build(model)
    entries = [p for group in optimizer.param_groups for p in group["params"]]
    assert sum(p.shape == (65, 32) for p in entries) == 1
    assert "head.weight" not in decay_by_name(model)


def test_adamw_is_built_as_configured() -> None:
    model = small_model()
    optimizer = AdamW(lr=0.02, weight_decay=0.3, beta1=0.8, beta2=0.9, eps=1e-6).build(model)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]
    for group in optimizer.param_groups:
        assert (group["lr"], group["betas"], group["eps"]) == (0.02, (0.8, 0.9), 1e-6)
        assert group["fused"]


def test_decay_shrinks_a_matrix_and_leaves_a_vector() -> None:
    layer = nn.Linear(3, 3)
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    optimizer = AdamW(lr=0.5, weight_decay=0.2).build(layer)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(layer.weight, before["weight"] * 0.9)
    assert torch.equal(layer.bias, before["bias"])


def with_gradient(*values: float) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(len(values), dtype=torch.float64))
    parameter.grad = torch.tensor(values, dtype=torch.float64)
    return parameter


def test_clipping_scales_to_the_global_norm_with_an_epsilon_of_one_millionth() -> None:
    a, b = with_gradient(3.0), with_gradient(0.0, 4.0)
    assert clip_gradients([a, b], 2.0).item() == 5.0
    assert a.grad is not None and b.grad is not None
    assert a.grad.item() == pytest.approx(3 * 2 / (5 + 1e-6), rel=1e-12)
    assert b.grad[1].item() == pytest.approx(4 * 2 / (5 + 1e-6), rel=1e-12)


def test_clipping_leaves_small_gradients_alone() -> None:
    a = with_gradient(3.0, 4.0)
    assert clip_gradients([a], 6.0).item() == 5.0
    assert a.grad is not None and a.grad.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("size", [0.0, 1e30])
def test_a_limit_of_zero_turns_clipping_off(size: float) -> None:
    a = with_gradient(size)
    assert clip_gradients([a], 0.0).item() == pytest.approx(size)
    assert a.grad is not None and a.grad.item() == size


def test_a_gradient_that_is_not_finite_shows_in_the_norm() -> None:
    assert math.isnan(clip_gradients([with_gradient(float("nan"))], 1.0).item())
    assert math.isinf(clip_gradients([with_gradient(float("inf"))], 1.0).item())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "optimizer.lr=0 must be positive"),
        ({"weight_decay": -0.1}, "optimizer.weight_decay=-0.1 must be 0 or more"),
        ({"clip_norm": -1.0}, "optimizer.clip_norm=-1 must be 0 or more"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdamW(**options)
