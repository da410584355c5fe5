"""Learning-rate schedules: exact factors, and that each ends where the run does."""

from __future__ import annotations

import math

import pytest

from lm_experiments.registry import component, names
from lm_experiments.training.schedules import (
    WSD,
    Constant,
    Cosine,
    InverseSquareRoot,
    Linear,
    Schedule,
)

EVERY_SCHEDULE = [component("schedule", name).build for name in names("schedule")]


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        (0, 0.0),
        (1, 1 / 7),
        (6, 6 / 7),
        (7, 1.0),
        (8, 0.98871756),
        (9, 0.95543599),
        (10, 0.90182417),
        (14, 0.55),
        (21, 0.1),
    ],
)
def test_cosine(step: int, factor: float) -> None:
    schedule = Cosine(warmup_steps=7, min_ratio=0.1)
    assert schedule.factor(step, 21) == pytest.approx(factor, abs=5e-9)


@pytest.mark.parametrize(("step", "factor"), [(2, 0.5), (4, 1.0), (9, 0.6), (14, 0.2)])
def test_linear(step: int, factor: float) -> None:
    assert Linear(warmup_steps=4, min_ratio=0.2).factor(step, 14) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("step", "factor"), [(5, 0.5), (10, 1.0), (50, 1.0), (80, 1.0), (90, 0.55), (100, 0.1)]
)
def test_wsd(step: int, factor: float) -> None:
    schedule = WSD(warmup_steps=10, min_ratio=0.1, decay_fraction=0.2)
    assert schedule.factor(step, 100) == pytest.approx(factor)


@pytest.mark.parametrize(("step", "factor"), [(2, 0.5), (4, 1.0), (16, 0.5), (100, 0.2)])
def test_inverse_square_root(step: int, factor: float) -> None:
    assert InverseSquareRoot(warmup_steps=4).factor(step, 100) == pytest.approx(factor)


@pytest.mark.parametrize(("step", "factor"), [(2, 0.5), (4, 1.0), (100, 1.0)])
def test_constant(step: int, factor: float) -> None:
    assert Constant(warmup_steps=4).factor(step, 100) == factor


@pytest.mark.parametrize("kind", EVERY_SCHEDULE)
@pytest.mark.parametrize("total", [1, 2, 10, 37])
def test_every_schedule_is_in_range_and_reaches_one(kind: type[Schedule], total: int) -> None:
    factors = [kind().factor(step, total) for step in range(1, total + 1)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert max(factors) == 1.0
    peak = factors.index(1.0)
    assert factors[peak:] == sorted(factors[peak:], reverse=True)


@pytest.mark.parametrize("kind", [Cosine, Linear, WSD])
@pytest.mark.parametrize("total", [21, 100, 333])
def test_the_minimum_is_reached_at_the_last_step_and_not_before(
    kind: type[Cosine], total: int
) -> None:
    schedule = kind(warmup_steps=7, min_ratio=0.25)
    assert schedule.factor(total, total) == pytest.approx(0.25, abs=1e-12)
    assert schedule.factor(total - 1, total) > 0.25 + 1e-6
    assert schedule.factor(total + 5, total) == pytest.approx(0.25, abs=1e-12)


@pytest.mark.parametrize("kind", EVERY_SCHEDULE)
def test_without_warm_up_the_first_step_is_at_the_peak_or_on_the_curve(
    kind: type[Schedule],
) -> None:
    assert kind(warmup_steps=0).factor(0, 10) == 1.0
    assert kind(warmup_steps=0).factor(1, 1000) > 0.99


@pytest.mark.parametrize(("total", "warmup"), [(1, 1), (10, 1), (11, 2), (300, 30)])
def test_a_tenth_of_the_run_is_warm_up_where_nothing_is_said(total: int, warmup: int) -> None:
    assert Cosine().warmup(total) == warmup == math.ceil(total / 10)


@pytest.mark.parametrize("kind", EVERY_SCHEDULE)
def test_a_warm_up_longer_than_the_run_is_refused(kind: type[Schedule]) -> None:
    message = (
        "schedule.warmup_steps=22 is more than trainer.max_steps=21; type schedule.warmup_steps=3"
    )
    with pytest.raises(ValueError, match=message):
        kind(warmup_steps=22).factor(1, 21)
    assert kind(warmup_steps=21).factor(21, 21) == 1.0


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Cosine, {"warmup_steps": -1}, "schedule.warmup_steps=-1 must be 0 or more"),
        (Cosine, {"min_ratio": 1.5}, "schedule.min_ratio=1.5 must be between 0 and 1"),
        (WSD, {"decay_fraction": -0.1}, "schedule.decay_fraction=-0.1 must be between 0 and 1"),
    ],
)
def test_impossible_options_are_refused(
    kind: type[Schedule], options: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)  # type: ignore[arg-type]
