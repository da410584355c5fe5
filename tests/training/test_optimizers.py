"""Which parameters are decayed, how gradients are clipped, and what the optimizer is given."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lm_experiments.model import Choice, ModelConfig, Transformer, build_model
from lm_experiments.registry import component, names
from lm_experiments.training.optimizers import (
    SGD,
    AdamW,
    JointOptimizer,
    Lion,
    Muon,
    Optimizer,
    clip_gradients,
    parameter_groups,
)


def built(name: str) -> Optimizer:
    optimizer = component("optimizer", name).options()
    assert isinstance(optimizer, Optimizer)
    return optimizer


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


@pytest.mark.parametrize("optimizer", [AdamW, Lion, Muon])
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_an_independent_decay_follows_the_schedule_and_not_the_rate(
    optimizer: type[Optimizer], factor: float
) -> None:
    shares = []
    for lr in (1e-3, 0.5):
        model = small_model(init=Choice("mup")) if optimizer is not Muon else small_model()
        built = optimizer(lr=lr, weight_decay=0.01, decay="independent").build(model)
        for group in built.param_groups:
            group["lr"] = lr * factor * group["lr_scale"]
            shares += [group["lr"] * group["weight_decay"]] if group["weight_decay"] else []
    # What the update of each of them multiplies the weights by is one less this.
    assert shares == pytest.approx([0.01 * factor] * len(shares))
    assert len(shares) >= 2


def test_an_independent_decay_by_hand() -> None:
    weight, none = torch.tensor([[1.0, -2.0]]), torch.zeros(1, 2)
    for optimizer in (AdamW, Lion, Muon):
        decayed = optimizer(lr=0.3, weight_decay=0.01, decay="independent")
        torch.testing.assert_close(one_step(decayed, weight, none), weight * 0.99)
        coupled = optimizer(lr=0.3, weight_decay=0.01)
        torch.testing.assert_close(one_step(coupled, weight, none), weight * 0.997)


@pytest.mark.parametrize("tokens", [1024, 4096])
def test_beta2_halves_after_its_tokens(tokens: int) -> None:
    optimizer = AdamW(beta2_tokens=8192).at(tokens)
    assert isinstance(optimizer, AdamW)
    assert optimizer.beta2 ** (8192 / tokens) == pytest.approx(0.5)
    assert AdamW(beta2=0.9).at(tokens) == AdamW(beta2=0.9)
    built = Muon(beta2_tokens=8192).at(tokens).build(small_model())
    assert built.param_groups[-1]["betas"] == (0.9, optimizer.beta2)


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
        ({"decay": "no"}, "optimizer.decay=no is not known; it can be coupled or independent"),
        (
            {"decay": "independent"},
            r"take 10% of the weights at each step; type optimizer\.weight_decay=0\.0003, what",
        ),
        ({"beta2_tokens": 0}, "optimizer.beta2_tokens=0 must be 1 or more"),
        ({"beta2_tokens": 9, "beta2": 0.9}, "optimizer.beta2=0.9 is not read beside"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdamW(**options)


def test_sgd_has_no_independent_decay() -> None:
    known = "type optimizer.decay=coupled, or one of optimizer=adamw, optimizer=muon"
    with pytest.raises(ValueError, match=f"optimizer=sgd is part of the gradient; {known}"):
        SGD(decay="independent")


def built_groups(name: str, model: nn.Module) -> list[dict[str, Any]]:
    return built(name).build(model).param_groups


@pytest.mark.parametrize("name", names("optimizer"))
@pytest.mark.parametrize("tied", [False, True])
def test_every_optimizer_has_each_parameter_once_and_decays_matrices_alone(
    name: str, tied: bool
) -> None:
    model = small_model(tie_embeddings=tied, bias=True)
    entries = [p for group in built_groups(name, model) for p in group["params"]]
    assert len(entries) == len(set(map(id, entries))) == len(list(model.parameters()))
    for group in built_groups(name, model):
        for parameter in group["params"]:
            assert group["weight_decay"] == (
                built(name).weight_decay if parameter.dim() >= 2 else 0.0
            )


def one_step(optimizer: Optimizer, weight: Tensor, *gradients: Tensor) -> Tensor:
    """Return the weight of a linear layer after a step for each gradient."""
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weight)
    built = optimizer.build(layer)
    for gradient in gradients:
        layer.weight.grad = gradient.clone()
        built.step()
    return layer.weight.detach()


def test_lion_by_hand() -> None:
    weight, gradient = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([[0.5, -0.1, 0.0]])
    lion = Lion(lr=0.1, weight_decay=0.5, beta1=0.9, beta2=0.5)
    first = one_step(lion, weight, gradient)
    expected = weight * 0.95 - 0.1 * torch.tensor([[1.0, -1.0, 0.0]])
    torch.testing.assert_close(first, expected)
    # The momentum is half the first gradient, and outweighs a tenth of the second.
    second = one_step(lion, weight, gradient, -gradient * 2)
    torch.testing.assert_close(second, expected * 0.95 - 0.1 * torch.tensor([[1.0, -1.0, 0.0]]))
    # Against a larger one it does not.
    third = one_step(lion, weight, gradient, -gradient * 9)
    torch.testing.assert_close(third, expected * 0.95 + 0.1 * torch.tensor([[1.0, -1.0, 0.0]]))


def test_sgd_by_hand() -> None:
    weight, gradient = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 1.0]])
    sgd = SGD(lr=0.1, weight_decay=0.2, momentum=0.5)
    first = weight - 0.1 * (gradient + 0.2 * weight)
    momentum = 0.5 * (gradient + 0.2 * weight) + gradient + 0.2 * first
    torch.testing.assert_close(one_step(sgd, weight, gradient), first)
    torch.testing.assert_close(one_step(sgd, weight, gradient, gradient), first - 0.1 * momentum)
    nesterov = SGD(lr=0.1, weight_decay=0.0, momentum=0.5, nesterov=True)
    torch.testing.assert_close(one_step(nesterov, weight, gradient), weight - 0.15 * gradient)


@pytest.mark.parametrize(
    ("adjust_lr", "scale"), [("match_rms_adamw", 0.2 * math.sqrt(32)), ("original", 2.0)]
)
def test_a_step_of_muon_is_nearly_orthogonal(adjust_lr: str, scale: float) -> None:
    gradient = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
    muon = Muon(lr=0.01, weight_decay=0.0, adjust_lr=adjust_lr)
    step = one_step(muon, torch.zeros(32, 8), gradient) / (-0.01 * scale)
    singular = torch.linalg.svdvals(step)
    assert singular.min().item() > 0.5 and singular.max().item() < 1.5
    u, _, v = torch.linalg.svd(gradient, full_matrices=False)
    cosine = (step * (u @ v)).sum() / step.norm() / (u @ v).norm()
    assert cosine.item() > 0.95


def test_muon_moves_the_matrices_inside_blocks_and_adamw_the_rest() -> None:
    model = small_model(bias=True, norm=Choice("layernorm"))
    built = Muon(lr=0.02, adamw_lr_ratio=0.1).build(model)
    assert isinstance(built, JointOptimizer)
    names_of = {id(parameter): name for name, parameter in model.named_parameters()}
    muon, *rest = built.param_groups
    assert {names_of[id(p)] for p in muon["params"]} == {
        name
        for name, parameter in model.named_parameters()
        if name.startswith("blocks.") and parameter.dim() == 2
    }
    assert muon["lr"] == 0.02
    for group in rest:
        assert (group["lr"], group["lr_scale"], group["fused"]) == (0.002, 0.1, True)


def test_the_parts_of_a_joint_optimizer_step_as_they_do_alone() -> None:
    one, other = small_model(), small_model()
    joint = Muon(lr=0.02).build(one)
    parts = Muon(lr=0.02).build(other)
    assert isinstance(parts, JointOptimizer)
    for _ in range(3):
        for model in (one, other):
            learn(model)
        joint.step()
        for part in parts.parts:
            part.step()
    for wanted, found in zip(other.parameters(), one.parameters(), strict=True):
        assert torch.equal(found, wanted)


def learn(model: Transformer) -> None:
    tokens = torch.arange(34).view(2, 17) % 7
    model.zero_grad()
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()  # type: ignore[no-untyped-call]


def train_steps(model: Transformer, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """Take steps at a rate that rises, as a schedule makes it."""
    for step in steps:
        learn(model)
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * step * group["lr_scale"]
        optimizer.step()


@pytest.mark.parametrize("name", names("optimizer"))
def test_every_optimizer_continues_from_its_saved_state_bit_for_bit(name: str) -> None:
    straight, cut, again = (small_model() for _ in range(3))
    train_steps(straight, built(name).build(straight), range(1, 5))
    optimizer = built(name).build(cut)
    train_steps(cut, optimizer, range(1, 3))
    buffer = io.BytesIO()
    torch.save({"model": cut.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=True)
    again.load_state_dict(saved["model"])
    continued = built(name).build(again)
    continued.load_state_dict(saved["optimizer"])
    train_steps(again, continued, range(3, 5))
    for wanted, found in zip(straight.parameters(), again.parameters(), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (AdamW, {"beta2": 1.0}, "optimizer.beta2=1 must be 0 or more, and below 1"),
        (AdamW, {"eps": 0.0}, "optimizer.eps=0 must be positive"),
        (Muon, {"adamw_lr_ratio": 0.0}, "optimizer.adamw_lr_ratio=0 must be positive"),
        (Muon, {"adjust_lr": "moonlight"}, "can be match_rms_adamw or original"),
        (Lion, {"beta1": -0.1}, "optimizer.beta1=-0.1 must be 0 or more, and below 1"),
        (SGD, {"momentum": 1.5}, "optimizer.momentum=1.5 must be 0 or more, and below 1"),
        (SGD, {"momentum": 0.0, "nesterov": True}, "nesterov=true needs a momentum"),
    ],
)
def test_impossible_options_of_each_optimizer_are_refused(
    cls: type[Optimizer], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**options)


@pytest.mark.parametrize("name", names("optimizer"))
def test_mup_takes_an_optimizer_whose_steps_have_a_set_size(name: str) -> None:
    wide = ModelConfig(d_model=256, init=Choice("mup"))
    if name in ("adamw", "lion"):
        built(name).check(wide)
    else:
        with pytest.raises(ValueError, match=rf"optimizer={name} is none; type optimizer=adamw"):
            built(name).check(wide)
    built(name).check(ModelConfig(d_model=128, init=Choice("mup")))
