"""Position encodings: exact values, no side effects, and float32 tables for any dtype."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_models import tiny_batch, tiny_config, tiny_model
from torch import Tensor, nn

from lm_experiments.model import choose
from lm_experiments.model.positions import (
    Learned,
    NoPosition,
    Position,
    PositionSizes,
    RoPE,
    RoPEOptions,
    Sinusoidal,
)
from lm_experiments.model.transformer import sketch_model
from lm_experiments.registry import NoOptions, component, names

PAIRINGS = RoPEOptions.PAIRINGS


def rope(width: int = 4, length: int = 64, **options: Any) -> RoPE:
    sizes = PositionSizes(d_model=width, n_heads=1, head_width=width, context_length=length)
    return RoPE(RoPEOptions(**options), sizes)


def sinusoidal(width: int, length: int = 64) -> Sinusoidal:
    return Sinusoidal(NoOptions(), PositionSizes(width, 1, width, length))


def turn(encoding: RoPE, x: Tensor, position: int) -> Tensor:
    """Rotate one vector as if it stood at ``position``."""
    phases = encoding.phases(torch.tensor([position]))
    return encoding.rotate(x.view(1, 1, 1, -1), phases).flatten()


@pytest.mark.parametrize(
    ("pairing", "x", "expected"),
    [
        ("interleaved", [1.0, 0, 0, 0], [0.5403, 0.8415, 0, 0]),
        ("half", [1.0, 0, 0, 0], [0.5403, 0, 0.8415, 0]),
        ("interleaved", [0, 0, 1.0, 0], [0, 0, math.cos(0.01), math.sin(0.01)]),
        ("half", [0, 1.0, 0, 0], [0, math.cos(0.01), 0, math.sin(0.01)]),
        ("interleaved", [0, 1.0, 0, 0], [-0.8415, 0.5403, 0, 0]),
        ("half", [0, 0, 1.0, 0], [-0.8415, 0, 0.5403, 0]),
    ],
)
def test_rope_at_position_one(pairing: str, x: list[float], expected: list[float]) -> None:
    turned = turn(rope(pairing=pairing), torch.tensor(x), 1)
    assert turned.tolist() == pytest.approx(expected, abs=5e-5)


def test_rope_theta_is_the_base_of_the_wavelengths() -> None:
    turned = turn(rope(theta=100.0), torch.tensor([0, 0, 1.0, 0]), 3)
    assert turned.tolist() == pytest.approx([0, 0, math.cos(0.3), math.sin(0.3)], abs=1e-6)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rope_keeps_the_norm(pairing: str) -> None:
    encoding, x = rope(32, pairing=pairing), torch.randn(2, 3, 64, 32)
    turned = encoding.rotate(x, encoding.phases(torch.arange(64)))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rope_leaves_position_zero_alone(pairing: str) -> None:
    x = torch.randn(32)
    assert torch.equal(turn(rope(32, pairing=pairing), x, 0), x)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rope_scores_depend_on_the_distance_alone(pairing: str) -> None:
    encoding, query, key = rope(32, pairing=pairing), torch.randn(32), torch.randn(32)

    def score(m: int, n: int) -> float:
        return float(turn(encoding, query, m) @ turn(encoding, key, n))

    assert score(50, 43) == pytest.approx(score(7, 0), abs=1e-4)
    assert score(20, 31) == pytest.approx(score(0, 11), abs=1e-4)
    assert abs(score(7, 0) - score(8, 0)) > 1e-2


def test_the_two_pairings_are_one_encoding_on_reordered_columns() -> None:
    x = torch.randn(8)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    half = turn(rope(8, pairing="half"), x[order], 5)
    # Interleaved pairs are turned as complex numbers, whose products may round otherwise.
    torch.testing.assert_close(half, turn(rope(8), x, 5)[order])


def to_bfloat16(module: nn.Module) -> nn.Module:
    return module.to(torch.bfloat16)


def copied_then_cast(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).bfloat16()


def cast_then_copied(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module.to("cpu", torch.bfloat16))


CASTS = [to_bfloat16, copied_then_cast, cast_then_copied, nn.Module.half]


@pytest.mark.parametrize("cast", CASTS)
def test_rope_phases_stay_float32_however_the_model_is_cast(
    cast: Callable[[nn.Module], nn.Module],
) -> None:
    encoding = rope(64, length=2048)
    cast(nn.ModuleList([encoding]))
    cast_encoding = cast(nn.ModuleList([encoding]))[0]  # type: ignore[index]
    phases = cast_encoding.phases(torch.arange(2048))
    frequencies = 10000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
    angles = torch.outer(torch.arange(2048, dtype=torch.float64), frequencies)
    exact = torch.stack((angles.cos(), angles.sin()))
    assert phases.dtype == torch.float32
    assert (phases - exact).abs().max() < 1e-7


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rope_turns_in_float32_and_rounds_once(pairing: str) -> None:
    encoding, x = rope(32, pairing=pairing), torch.randn(2, 3, 64, 32).bfloat16()
    phases = encoding.phases(torch.arange(64))
    exact = encoding.rotate(x.float(), phases).bfloat16()
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            assert torch.equal(encoding.rotate(x, phases), exact)


@pytest.mark.parametrize(
    ("options", "sizes", "message"),
    [
        ({"pairing": "llama"}, {}, "pairing=llama is not known; it can be interleaved, half"),
        ({"theta": 0.0}, {}, "theta=0 must be positive"),
        ({"theta": math.inf}, {}, "theta=inf must be positive"),
        ({}, {"d_model": 30}, "the head width 15 is 15, .* type model.position.fraction=0.933333,"),
        ({}, {"d_model": 2}, "the head width 1 is 1, .* choose sizes that make it 2 or more"),
        ({"fraction": 0.3}, {}, "head width 16 is 4.8, .* type model.position.fraction=0.25,"),
        ({"fraction": 0.01}, {}, "is 0.16, .* type model.position.fraction=0.125,"),
        ({"fraction": 0.0}, {}, "fraction=0 must be above 0 and at most 1"),
        ({"fraction": 1.5}, {}, "fraction=1.5 must be above 0 and at most 1"),
    ],
)
def test_rope_refuses_what_it_cannot_do(
    options: dict[str, Any], sizes: dict[str, int], message: str
) -> None:
    config = tiny_config(**sizes)
    with pytest.raises(ValueError, match=message):
        object.__setattr__(config, "position", choose("position", "rope", options))
        sketch_model(config)


def test_sinusoidal_of_odd_width_at_position_one() -> None:
    row = sinusoidal(5).table[1]
    expected = [0.841471, 0.540302, 0.025116, 0.999685, 0.000631]
    assert row.tolist() == pytest.approx(expected, abs=5e-7)


def test_sinusoidal_at_position_zero_is_sine_zero_cosine_one() -> None:
    x = torch.randn(1, 1, 6)
    added = sinusoidal(6).embed(x, torch.tensor([0])) - x
    assert added.flatten().tolist() == pytest.approx([0, 1, 0, 1, 0, 1], abs=1e-6)


def test_sinusoidal_in_bfloat16_still_tells_256_from_257() -> None:
    encoding = sinusoidal(8, length=512)
    table = encoding.table.clone()
    encoding.bfloat16()
    assert torch.equal(encoding.table, table)
    zero = torch.zeros(1, 2, 8, dtype=torch.bfloat16)
    at_256, at_257 = encoding.embed(zero, torch.tensor([256, 257]))[0]
    assert not torch.equal(at_256, at_257)


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "alibi", "hard_alibi", "none"])
def test_fixed_encodings_have_no_parameters_and_are_not_saved(name: str) -> None:
    model = tiny_model(position=name)
    assert not [key for key in model.state_dict() if key.startswith("position")]
    assert not [key for key, _ in model.named_parameters() if key.startswith("position")]


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "alibi", "hard_alibi", "t5"])
def test_a_table_sketched_without_memory_is_filled_when_the_model_is_built(name: str) -> None:
    built = tiny_model(position=name).position
    options = component("position", name).options()
    direct: Position = type(built)(options, PositionSizes(32, 2, 16, 16))
    assert torch.equal(built.table, direct.table)  # type: ignore[arg-type]


def test_learned_positions_are_normal_with_std_of_one_fiftieth() -> None:
    encoding = Learned(NoOptions(), PositionSizes(256, 4, 64, 512))
    encoding.reset_parameters()
    assert encoding.weight.shape == (512, 256)
    assert encoding.weight.std().item() == pytest.approx(0.02, rel=0.01)
    x = torch.randn(2, 3, 256)
    embedded = encoding.embed(x, torch.tensor([4, 0, 9]))
    assert torch.equal(embedded[1, 2], x[1, 2] + encoding.weight[9])


def test_no_position_does_nothing_at_all() -> None:
    encoding = NoPosition(NoOptions(), PositionSizes(8, 2, 4, 6))
    x, positions = torch.randn(1, 3, 8), torch.arange(3)
    assert encoding.embed(x, positions) is x
    assert encoding.rotate(x, encoding.phases(positions)) is x
    assert encoding.bias(positions, positions) is None


@torch.no_grad()
@pytest.mark.parametrize("name", names("position"))
def test_only_no_position_is_blind_to_the_order_of_earlier_tokens(name: str) -> None:
    model = tiny_model(position=name, n_layers=1, n_heads=4)
    tokens = torch.arange(16)[None]
    swapped = tokens.clone()
    # Within reach of the second window of hard ALiBi.
    swapped[0, -3:-1] = torch.tensor([14, 13])
    change = (model(tokens)[0, -1] - model(swapped)[0, -1]).abs().max()
    assert (change < 5e-6) == (name == "none")


@torch.no_grad()
@pytest.mark.parametrize("name", names("position"))
def test_lengths_8_16_8_leave_no_trace(name: str) -> None:
    model, (tokens, _) = tiny_model(position=name), tiny_batch(2)
    table = getattr(model.position, "table", None)
    first = model(tokens[:, :8])
    whole = model(tokens)
    assert torch.equal(model(tokens[:, :8]), first)
    assert getattr(model.position, "table", None) is table
    torch.testing.assert_close(whole[:, :8], first, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_of_a_fraction_only_the_first_columns_turn(pairing: str) -> None:
    whole, part = rope(8, pairing=pairing), rope(32, fraction=0.25, pairing=pairing)
    x = torch.randn(2, 3, 5, 32)
    positions = torch.arange(5)
    turned = part.rotate(x, part.phases(positions))
    # Their wavelengths are those of a head as narrow as they are.
    assert torch.equal(turned[..., :8], whole.rotate(x[..., :8].clone(), whole.phases(positions)))
    assert torch.equal(turned[..., 8:], x[..., 8:])


def test_a_fraction_of_a_head_of_odd_width_rotates() -> None:
    x = torch.randn(1, 2, 3, 15)
    encoding = rope(15, fraction=0.933333)
    turned = encoding.rotate(x, encoding.phases(torch.arange(3)))
    assert torch.equal(turned[..., 14:], x[..., 14:])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert not torch.equal(turned[:, :, 1:], x[:, :, 1:])


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_rope_turns_each_sequence_at_positions_of_its_own(pairing: str, fraction: float) -> None:
    encoding, x = rope(8, pairing=pairing, fraction=fraction), torch.randn(3, 2, 4, 8)
    positions = torch.tensor([[0, 1, 2, 3], [9, 8, 0, 1], [5, 6, 7, 60]])
    turned = encoding.rotate(x, encoding.phases(positions))
    for row in range(3):
        alone = encoding.rotate(x[row : row + 1], encoding.phases(positions[row]))
        assert torch.equal(turned[row : row + 1], alone)


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_absolute_encodings_add_to_each_sequence_at_positions_of_its_own(name: str) -> None:
    encoding, x = tiny_model(position=name).position, torch.randn(2, 3, 32)
    positions = torch.tensor([[0, 1, 2], [7, 0, 1]])
    embedded = encoding.embed(x, positions)
    for row in range(2):
        alone = encoding.embed(x[row : row + 1], positions[row])
        assert torch.equal(embedded[row : row + 1], alone)


@pytest.mark.parametrize("name", names("position"))
def test_an_extended_encoding_is_that_of_a_longer_context(name: str) -> None:
    config = tiny_config(position=name)
    model = tiny_model(position=name)
    if name == "learned":
        model.position.extend(16)
        with pytest.raises(ValueError, match=r"of 16 positions, too few for a context of 17; cho"):
            model.position.extend(17)
        return
    model.position.extend(40)
    model.position.extend(20)
    longer = sketch_model(dataclasses.replace(config, context_length=40)).to_empty(device="cpu")
    longer.load_state_dict(model.state_dict())
    tokens = torch.randint(65, (2, 40))
    with torch.no_grad():
        assert torch.equal(model(tokens), longer(tokens))
