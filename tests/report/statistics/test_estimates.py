"""Plain t statistics and Holm's procedure on arrays, against scipy and worked values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.estimates import Estimates, holm_adjusted, plain_t

DIFFERENCES = np.random.default_rng(1).normal(0.3, 1.0, (3, 4, 5))


def test_plain_t_is_scipys_paired_test_and_interval() -> None:
    theirs = stats.ttest_1samp(DIFFERENCES, 0.0, axis=-1)
    ours = plain_t(DIFFERENCES)
    np.testing.assert_allclose(ours.p(), theirs.pvalue, rtol=1e-12)
    interval = theirs.confidence_interval(0.9)
    np.testing.assert_allclose(ours.interval(0.9), (interval.low, interval.high), rtol=1e-10)


def test_p_within_is_the_larger_of_scipys_one_sided_tests() -> None:
    above = stats.ttest_1samp(DIFFERENCES, -1.0, axis=-1, alternative="greater").pvalue
    below = stats.ttest_1samp(DIFFERENCES, 1.0, axis=-1, alternative="less").pvalue
    np.testing.assert_allclose(plain_t(DIFFERENCES).p_within(1.0), np.maximum(above, below))


def test_equal_differences_have_no_spread_and_are_certain() -> None:
    found = plain_t(np.array([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5]]))
    assert found.p().tolist() == [1.0, 0.0]
    assert found.p_within(0.5).tolist() == [0.0, 1.0]


def test_a_missing_arm_has_p_one() -> None:
    found = plain_t(np.array([[0.1, np.nan, 0.1], [0.1, 0.2, 0.3]]))
    assert found.p()[0] == found.p_within(1.0)[0] == 1.0
    assert found.p()[1] < 1


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.9, 0.6], [1.0, 1.0]),
        ([0.02], [0.02]),
    ],
)
def test_holm_gives_worked_values(p_values: list[float], adjusted: list[float]) -> None:
    np.testing.assert_allclose(holm_adjusted(np.array(p_values)), adjusted)
    np.testing.assert_allclose(holm_adjusted(np.array([p_values, p_values[::-1]]))[0], adjusted)


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_holm_refuses_what_is_no_probability(value: float) -> None:
    with pytest.raises(InputError, match="outside 0 to 1"):
        holm_adjusted(np.array([0.5, value]))


@pytest.mark.parametrize("margin", [0.0, -1.0, np.inf, np.nan])
def test_a_margin_is_above_zero(margin: float) -> None:
    with pytest.raises(InputError, match="margin"):
        Estimates(np.zeros(1), np.ones(1), np.ones(1)).p_within(margin)


def test_one_seed_has_no_test() -> None:
    with pytest.raises(InputError, match="two seeds or more, not 1"):
        plain_t(np.zeros((2, 1)))
