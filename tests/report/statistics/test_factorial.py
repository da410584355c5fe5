"""Main effects and interactions of a grid, against worked values and a least-squares fit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.factorial import Cell, Effect, Effects, factorial_effects

FACTORS = {"placement": ["pre", "post"], "ffn": ["swiglu", "silu", "relu"]}
SEEDS = [0, 1, 2]
# Post-norm costs .016 with SwiGLU, .062 with SiLU and .02 with ReLU.
MEANS = {
    ("pre", "swiglu"): 3.0,
    ("pre", "silu"): 3.03,
    ("pre", "relu"): 3.05,
    ("post", "swiglu"): 3.016,
    ("post", "silu"): 3.092,
    ("post", "relu"): 3.07,
}


def grid(noise: float = 0.0) -> dict[Cell, dict[int, float]]:
    generator = np.random.default_rng(3)
    shared = {seed: generator.normal(0, 0.1) for seed in SEEDS}
    return {
        cell: {seed: mean + shared[seed] + noise * generator.normal() for seed in SEEDS}
        for cell, mean in MEANS.items()
    }


def by_name(found: Effects) -> dict[tuple[object, ...], Effect]:
    return {effect.levels: effect for effect in found.effects}


def test_effects_are_the_worked_ones_and_what_a_seed_shares_cancels() -> None:
    found = by_name(factorial_effects(FACTORS, grid()))
    assert {levels: effect.mean for levels, effect in found.items()} == {
        ("post",): pytest.approx((0.016 + 0.062 + 0.02) / 3),
        ("silu",): pytest.approx((0.03 + 0.076) / 2),
        ("relu",): pytest.approx((0.05 + 0.054) / 2),
        ("post", "silu"): pytest.approx(0.046),
        ("post", "relu"): pytest.approx(0.004),
    }
    assert found["post", "silu"].factors == ("placement", "ffn")


def test_each_effect_is_tested_over_the_seeds_and_adjusted_over_the_grid() -> None:
    effects = factorial_effects(FACTORS, grid(noise=0.02)).effects
    for effect in effects:
        theirs = stats.ttest_1samp(effect.by_seed, 0.0)
        assert effect.p == pytest.approx(theirs.pvalue)
        assert (effect.low, effect.high) == pytest.approx(theirs.confidence_interval())
    smallest = min(effects, key=lambda effect: effect.p)
    assert smallest.adjusted_p == pytest.approx(min(1.0, 5 * smallest.p))


def test_three_factors_have_all_pairs() -> None:
    factors = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    losses = {
        cell: dict.fromkeys((0, 1), 3 + 0.1 * cell[0] + 0.2 * cell[1] * cell[2])
        for cell in product((0, 1), repeat=3)
    }
    found = {e.factors: e.mean for e in factorial_effects(factors, losses).effects}
    expected = [0.1, 0.1, 0.1, 0.0, 0.0, 0.2]
    names = [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")]
    assert found == {name: pytest.approx(x) for name, x in zip(names, expected, strict=True)}


def test_seeds_that_a_cell_lacks_are_left_out_and_said() -> None:
    losses = grid()
    del losses["post", "silu"][1]
    found = factorial_effects(FACTORS, losses)
    assert (found.seeds, found.incomplete_seeds) == ((0, 2), (1,))
    del losses["pre", "relu"][0]
    with pytest.raises(InputError, match="Only 1 seed"):
        factorial_effects(FACTORS, losses)


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_an_incomplete_grid_is_refused_by_name(change: str) -> None:
    losses = grid()
    cell = ("post", "silu") if change == "missing" else ("post", "gelu")
    if change == "missing":
        del losses[cell]
    else:
        losses[cell] = {0: 3.0}
    with pytest.raises(InputError, match=cell[1]):
        factorial_effects(FACTORS, losses)


@pytest.mark.parametrize("levels", [["pre"], ["pre", "pre"]])
def test_a_factor_has_different_levels(levels: list[str]) -> None:
    with pytest.raises(InputError, match="Factor placement"):
        factorial_effects({**FACTORS, "placement": levels}, grid())


def test_a_failed_run_leaves_no_effects() -> None:
    losses = grid()
    losses["post", "silu"][1] = float("nan")
    with pytest.raises(InputError, match="silu"):
        factorial_effects(FACTORS, losses)


@pytest.mark.slow
def test_false_claims_and_coverage_with_unlike_spread() -> None:
    generator, wrong, covered = np.random.default_rng(8), 0, np.zeros(3)
    factors = {"a": [0, 1], "b": [0, 1]}
    cells = list(product((0, 1), repeat=2))
    for _ in range(4000):
        noise = generator.normal(size=(4, 5)) * np.array([1, 3, 1, 1])[:, None]
        losses = {
            cell: dict(enumerate(row)) for cell, row in zip(cells, noise.tolist(), strict=True)
        }
        effects = factorial_effects(factors, losses).effects
        wrong += any(effect.adjusted_p <= 0.05 for effect in effects)
        covered += [effect.low <= 0 <= effect.high for effect in effects]
    assert 0.015 < wrong / 4000 <= 0.05
    assert np.all((covered / 4000 > 0.93) & (covered / 4000 < 0.97)), covered
