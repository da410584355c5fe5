"""Every component, and every pair of placement, feed-forward, position and attention, trains."""

from __future__ import annotations

import itertools
import math

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
from lm_experiments.model.init import multipliers
from lm_experiments.registry import names

MIXED = ("placement", "ffn", "position", "attention")
PAIRS = [
    {axis: one, other: two}
    for axis, other in [*itertools.combinations(MIXED, 2), ("norm", "placement")]
    for one, two in itertools.product(names(axis), names(other))
]
COMBINATIONS = [
    dict(zip(MIXED, chosen, strict=True)) for chosen in itertools.product(*map(names, MIXED))
]
TOKENS = 128


def label(choices: dict[str, str]) -> str:
    return "-".join(choices.values())


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


def assert_starts_as_expected(model: Transformer, loss: float) -> None:
    """Assert the loss of a head on a stream of unit size; without norms its size is not known."""
    if model.config.norm.name in ("none", "dyt"):
        return
    if model.config.init.name == "mup":
        # The head has variance 1/width here, at its base width, where logits are not scaled.
        assert multipliers(model.config).logits == 1
        variance = 32 * (1 / 32)
        assert loss == pytest.approx(math.log(65) + variance / 2, abs=0.4)
        return
    assert loss == pytest.approx(expected_initial_loss(model.config), abs=0.4)


@pytest.mark.parametrize(("axis", "name"), EVERY_COMPONENT)
@pytest.mark.parametrize("bias", [False, True])
def test_every_component_trains(axis: str, name: str, bias: bool) -> None:
    model = tiny_arm(axis, name, bias=bias)
    assert_is_what_the_ledger_says(model)
    assert_starts_as_expected(model, assert_one_step_learns(model))


@pytest.mark.parametrize(("axis", "name"), EVERY_COMPONENT)
def test_no_component_sees_the_future(axis: str, name: str) -> None:
    model, (inputs, _) = tiny_arm(axis, name), tiny_batch(2)
    for at in (0, 6, 14):
        assert_causal(model, inputs, at)


def assert_works(choices: dict[str, str]) -> None:
    model = tiny_model(**choices)
    assert_is_what_the_ledger_says(model)
    assert_starts_as_expected(model, assert_one_step_learns(model))
    assert_causal(model, tiny_batch(1)[0], 7)


@pytest.mark.parametrize("choices", PAIRS, ids=label)
def test_every_pair_trains(choices: dict[str, str]) -> None:
    assert_works(choices)


@pytest.mark.slow
@pytest.mark.parametrize("choices", COMBINATIONS, ids=label)
def test_every_combination_trains(choices: dict[str, str]) -> None:
    assert_works(choices)


@pytest.mark.parametrize("ffn", names("ffn"))
def test_every_feed_forward_arm_has_the_parameters_of_the_others(ffn: str) -> None:
    baseline = count(tiny_model(ffn="relu").config)
    arm = count(tiny_model(ffn=ffn).config)
    assert abs(arm.parts["ffn"] / baseline.parts["ffn"] - 1) <= 0.01
    assert arm.parameters - arm.parts["ffn"] == baseline.parameters - baseline.parts["ffn"]
