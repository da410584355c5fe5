"""Equivalence within a margin: the interval that decides, and false claims over a family."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_noise import SPREADS, differences

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.equivalence import equivalence
from lm_experiments.report.statistics.estimates import plain_t
from lm_experiments.report.statistics.moderated import moderated_t


def test_one_arm_is_decided_by_its_ninety_per_cent_interval() -> None:
    estimates = plain_t(np.array([[0.01, -0.02, 0.03, 0.02, 0.0]]))
    found = equivalence(estimates, margin=0.03)
    assert found.confidence.tolist() == [0.9]
    low, high = estimates.interval(0.9)
    assert (found.low, found.high) == (low, high)
    edge = float(high[0])
    assert equivalence(estimates, edge + 1e-6).equivalent.tolist() == [True]
    assert equivalence(estimates, edge - 1e-6).equivalent.tolist() == [False]


def test_an_arm_is_equivalent_exactly_when_its_interval_lies_within_the_margin() -> None:
    values = differences("one arm at 3x", 500, 4, 5)
    found = equivalence(plain_t(values), margin=2.0)
    inside = (found.low >= -2.0) & (found.high <= 2.0)
    assert 0.1 < inside.mean() < 0.9
    np.testing.assert_array_equal(inside, found.equivalent)


def test_a_missing_arm_counts_in_the_family() -> None:
    values = np.array([[0.01, -0.02, 0.03, 0.02, 0.0], [np.nan] * 5])
    both = equivalence(plain_t(values), margin=0.05)
    alone = equivalence(plain_t(values[:1]), margin=0.05)
    assert both.adjusted_p[0] == pytest.approx(2 * alone.adjusted_p[0])
    assert both.p[1] == both.adjusted_p[1] == 1.0


def test_the_margin_is_above_zero() -> None:
    with pytest.raises(InputError, match="margin is 0"):
        equivalence(plain_t(np.zeros((1, 3))), 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPREADS)
@pytest.mark.parametrize("seeds", [3, 5])
def test_no_more_than_five_per_cent_call_any_arm_at_the_margin_equivalent(
    kind: str, seeds: int
) -> None:
    margin = 6.0 if seeds == 3 else 4.0
    values = differences(kind, 20_000, 11, seeds) + margin
    # Skew that the baseline does not share is outside the assumptions of any t test.
    most = 0.055 if kind == "one skewed arm" else 0.05
    for test in (plain_t, moderated_t):
        found = equivalence(test(values), margin)
        assert found.equivalent.any(axis=-1).mean() <= most
    unadjusted = (found.p <= 0.05).any(axis=-1).mean()
    if kind == "equal":
        assert unadjusted > 0.15  # What the adjustment is for.
