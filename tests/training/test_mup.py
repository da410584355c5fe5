"""The coordinate check of muP: what training changes must not grow with the width.

Models of widths 32 to 256 take three steps of Adam on the same tokens. How far that moves the
activations is compared by its slope over the width, both in logarithms: 0 is constant, and 1 is
twice as far at twice the width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from lm_experiments.model import ModelConfig, Transformer, build_model, choose
from lm_experiments.training.optimizers import AdamW, Lion, Optimizer

WIDTHS = (32, 64, 128, 256)
SEEDS = range(3)
STEPS = 3
STREAM = ("attention", "ffn", "block")
PLACES = (*STREAM, "logits")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Hold torch to one thread, on which models this small are fastest."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def config(width: int, base: int) -> ModelConfig:
    return ModelConfig(
        d_model=width,
        d_ff=4 * width,
        n_layers=2,
        n_heads=4,
        context_length=16,
        vocab_size=64,
        match_tolerance=0.05,
        init=choose("init", "mup", {"base_width": base}),
    )


def tokens() -> Tensor:
    return torch.randint(64, (8, 17), generator=torch.Generator().manual_seed(0))


def activations(model: Transformer) -> dict[str, Tensor]:
    """Return the outputs of the last block's sublayers and of the block, and the logits."""
    seen: dict[str, Tensor] = {}
    last: Any = model.blocks[-1]
    hooks = [
        module.register_forward_hook(lambda m, i, output, place=place: seen.update({place: output}))
        for place, module in zip(STREAM, (last.attention, last.ffn, last), strict=True)
    ]
    with torch.no_grad():
        seen["logits"] = model(tokens()[:, :-1])
    for hook in hooks:
        hook.remove()
    return seen


def train(model: Transformer, optimizer: Optimizer) -> None:
    built = optimizer.build(model)
    for group in built.param_groups:
        group["lr"] = optimizer.lr * group["lr_scale"]
    for _ in range(STEPS):
        loss = model.loss(tokens()[:, :-1], tokens()[:, 1:]) / 128
        loss.backward()  # type: ignore[no-untyped-call]
        built.step()
        built.zero_grad()


@cache
def moved(width: int, base: int, optimizer: Optimizer, seed: int) -> dict[str, float]:
    """Return the root mean square by which training moves the activations at each place."""
    model = build_model(config(width, base), seed)
    before = activations(model)
    train(model, optimizer)
    after = activations(model)
    return {place: (after[place] - before[place]).square().mean().sqrt().item() for place in PLACES}


def slope(place: str, optimizer: Optimizer, fixed_base: bool) -> float:
    """Return the slope over the width; without a fixed base, each width is its own."""
    points = []
    for width in WIDTHS:
        base = WIDTHS[0] if fixed_base else width
        sizes = [moved(width, base, optimizer, seed)[place] for seed in SEEDS]
        points.append((math.log(width), sum(map(math.log, sizes)) / len(sizes)))
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return covariance / sum((x - mean_x) ** 2 for x, _ in points)


OPTIMIZERS = [AdamW(lr=4e-3), Lion(lr=1e-3, weight_decay=0.1)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name)
@pytest.mark.parametrize("place", STREAM)
def test_under_mup_training_moves_every_width_as_far(place: str, optimizer: Optimizer) -> None:
    assert abs(slope(place, optimizer, fixed_base=True)) < 0.15


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name)
def test_under_mup_logits_do_not_move_further_in_wider_models(optimizer: Optimizer) -> None:
    # At widths this small the random part of the sum over the width, which falls as 1/sqrt(width),
    # is not yet negligible beside the part that is constant.
    assert -0.5 < slope("logits", optimizer, fixed_base=True) < 0.1


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: optimizer.name)
@pytest.mark.parametrize("place", PLACES)
def test_otherwise_training_moves_wider_models_further(place: str, optimizer: Optimizer) -> None:
    assert slope(place, optimizer, fixed_base=False) > 0.4


def test_rates_and_decay_inside_blocks_fall_with_the_width() -> None:
    optimizer = AdamW(lr=0.01, weight_decay=0.1)
    model = build_model(config(128, base=32), 0)
    scales = {}
    for group in optimizer.build(model).param_groups:
        for parameter in group["params"]:
            scales[id(parameter)] = (group["lr_scale"], group["lr_scale"] * group["weight_decay"])
    for name, parameter in model.named_parameters():
        matrix, hidden = parameter.dim() == 2, name.startswith("blocks.") and parameter.dim() == 2
        expected = (0.25 if hidden else 1.0, 0.1 if matrix else 0.0)
        assert scales[id(parameter)] == pytest.approx(expected), name


def test_mup_scales_scores_and_logits() -> None:
    wide, plain = (build_model(config(128, base), 0) for base in (32, 128))
    wide.load_state_dict(plain.state_dict())
    for block in wide.blocks:
        assert block.attention.scale == pytest.approx(math.sqrt(8) / 32)  # type: ignore[union-attr]
    for model in (wide, plain):
        for block in model.blocks:
            # Without scores, attention is an average whatever their scale.
            torch.nn.init.zeros_(block.attention.query.weight)  # type: ignore[union-attr, arg-type]
    torch.testing.assert_close(wide(tokens()[:, :-1]), plain(tokens()[:, :-1]) / 4)
    losses = [model.loss(tokens()[:, :-1], tokens()[:, 1:]).item() for model in (wide, plain)]
    assert losses[0] < losses[1]
