"""Every component, and every combination of placement, feed-forward and position, trains."""

from __future__ import annotations

import itertools

import pytest
import torch
from small_models import (
    EVERY_COMPONENT,
    assert_causal,
    expected_initial_loss,
    tiny_arm,
    tiny_batch,
    tiny_model,
)

from lm_experiments.model import Transformer, count
from lm_experiments.model.registry import names

COMBINATIONS = list(itertools.product(names("placement"), names("ffn"), names("position")))
TOKENS = 128


def assert_is_what_the_ledger_says(model: Transformer) -> None:
    assert sum(p.numel() for p in model.parameters()) == count(model.config).parameters


def assert_one_step_learns(model: Transformer) -> float:
    """Take one step on a batch; return the loss before it, which must be more than after."""
    inputs, targets = tiny_batch(TOKENS // 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss = model.loss(inputs, targets) / TOKENS
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.isfinite().all(), f"{name} has a gradient that is not finite"
        assert parameter.grad.any(), f"{name} has a gradient of zero"
    optimizer.step()
    with torch.no_grad():
        after = model.loss(inputs, targets) / TOKENS
    assert after.isfinite()
    assert after < loss
    return loss.item()


@pytest.mark.parametrize(("axis", "name"), EVERY_COMPONENT)
@pytest.mark.parametrize("bias", [False, True])
def test_every_component_trains(axis: str, name: str, bias: bool) -> None:
    model = tiny_arm(axis, name, bias=bias)
    assert_is_what_the_ledger_says(model)
    loss = assert_one_step_learns(model)
    if name != "none" or axis != "norm":
        assert loss == pytest.approx(expected_initial_loss(model.config), abs=0.4)


@pytest.mark.parametrize(("axis", "name"), EVERY_COMPONENT)
def test_no_component_sees_the_future(axis: str, name: str) -> None:
    model, (inputs, _) = tiny_arm(axis, name), tiny_batch(2)
    for at in (0, 6, 14):
        assert_causal(model, inputs, at)


@pytest.mark.parametrize(("placement", "ffn", "position"), COMBINATIONS)
def test_every_combination_trains(placement: str, ffn: str, position: str) -> None:
    model = tiny_model(placement=placement, ffn=ffn, position=position)
    assert_is_what_the_ledger_says(model)
    loss = assert_one_step_learns(model)
    assert loss == pytest.approx(expected_initial_loss(model.config), abs=0.4)
    assert_causal(model, tiny_batch(1)[0], 7)


@pytest.mark.parametrize("ffn", names("ffn"))
def test_every_feed_forward_arm_has_the_parameters_of_the_others(ffn: str) -> None:
    baseline = count(tiny_model(ffn="relu").config)
    arm = count(tiny_model(ffn=ffn).config)
    assert abs(arm.parts["ffn"] / baseline.parts["ffn"] - 1) <= 0.01
    assert arm.parameters - arm.parts["ffn"] == baseline.parameters - baseline.parts["ffn"]
