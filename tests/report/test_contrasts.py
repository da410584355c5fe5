"""Contrasts between arms: intervals and p-values by hand, against scipy, and at their limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lm_experiments.report.statistics.contrasts import Contrast, adjust, contrast


def arms(differences: list[float], base: float = 3.0) -> tuple[dict[int, float], dict[int, float]]:
    """An arm and a reference over seeds 0, 1, ... with these differences between them."""
    return {s: base + d for s, d in enumerate(differences)}, dict.fromkeys(
        range(len(differences)), base
    )


def made(differences: list[float], margin: float | None = None, base: float = 3.0) -> Contrast:
    result = contrast(*arms(differences, base), margin=margin)
    assert result is not None
    return result


def random_losses(generator: np.random.Generator, n: int) -> dict[int, float]:
    return {s: float(x) for s, x in enumerate(generator.normal(3.0, 0.1, n))}


def test_interval_of_three_differences_by_hand() -> None:
    result = made([0.1, 0.2, 0.3], base=0.0)
    assert result.paired
    assert (result.n, result.differences) == (3, (0.1, 0.2, 0.3))
    assert result.mean == pytest.approx(0.2)
    assert result.sd == pytest.approx(0.1)
    assert result.low == pytest.approx(0.2 - 0.248, abs=5e-4)
    assert result.high == pytest.approx(0.2 + 0.248, abs=5e-4)


def test_the_sign_is_arm_minus_reference() -> None:
    result = contrast({0: 3.0, 1: 3.1}, {0: 3.5, 1: 3.5})
    assert result is not None
    assert result.mean == pytest.approx(-0.45)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 30])
def test_paired_p_and_interval_agree_with_scipy(n: int) -> None:
    from scipy import stats

    generator = np.random.default_rng(n)
    for _ in range(20):
        ours, theirs = random_losses(generator, n), random_losses(generator, n)
        result = contrast(ours, theirs)
        expected = stats.ttest_rel(list(ours.values()), list(theirs.values()))
        interval = expected.confidence_interval(0.95)
        assert result is not None
        assert result.p == pytest.approx(expected.pvalue, rel=0, abs=1e-12)
        assert (result.low, result.high) == pytest.approx(tuple(interval), rel=0, abs=1e-12)


def test_welch_p_and_interval_agree_with_scipy() -> None:
    from scipy import stats

    generator = np.random.default_rng(0)
    ours = {s: float(x) for s, x in enumerate(generator.normal(3.0, 0.1, 5))}
    theirs = {s + 100: float(x) for s, x in enumerate(generator.normal(3.1, 0.4, 3))}
    result = contrast(ours, theirs)
    expected = stats.ttest_ind(list(ours.values()), list(theirs.values()), equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert result is not None
    assert not result.paired
    assert (result.n, result.differences) == (3, ())
    variances = [np.var(list(arm.values()), ddof=1) for arm in (ours, theirs)]
    assert result.sd == pytest.approx(math.sqrt(sum(variances)))
    assert result.p == pytest.approx(expected.pvalue, abs=1e-12)
    assert (result.low, result.high) == pytest.approx(tuple(interval), abs=1e-12)


def test_one_common_seed_gives_way_to_welch_only_where_both_arms_repeat() -> None:
    welch = contrast({0: 3.0, 1: 3.1}, {1: 3.2, 2: 3.3})
    single = contrast({1: 3.1}, {1: 3.2, 2: 3.3})
    assert welch is not None and single is not None
    assert (welch.paired, welch.n) == (False, 2)
    assert welch.p is not None
    assert (single.paired, single.n, single.p, single.low) == (True, 1, None, None)
    assert single.mean == pytest.approx(-0.1)


def test_single_runs_of_different_seeds_have_a_difference_without_spread() -> None:
    result = contrast({0: 3.0}, {1: 3.5}, margin=0.01)
    assert result is not None
    assert (result.mean, result.n, result.paired) == (-0.5, 1, False)
    assert (result.sd, result.low, result.high, result.p, result.equivalent_p) == (None,) * 5


def test_an_arm_without_losses_has_no_contrast() -> None:
    assert contrast({}, {0: 3.0}) is None
    assert contrast({0: 3.0}, {}) is None


def test_equal_arms_are_identical_with_p_one_and_an_interval_of_zero() -> None:
    result = made([0.0, 0.0, 0.0], margin=0.01)
    assert result.identical
    assert (result.mean, result.low, result.high) == (0.0, 0.0, 0.0)
    assert (result.p, result.equivalent_p) == (1.0, 0.0)


@pytest.mark.parametrize("n", [2, 3, 6, 7])
@pytest.mark.parametrize("shift", [0.1, -0.7])
def test_a_constant_difference_has_p_zero_even_where_its_mean_is_rounded(
    n: int, shift: float
) -> None:
    result = made([shift] * n, margin=0.05, base=0.0)
    assert not result.identical
    assert (result.mean, result.sd, result.p, result.equivalent_p) == (shift, 0.0, 0.0, 1.0)


def test_two_arms_that_each_repeat_exactly_are_compared_without_spread() -> None:
    result = contrast({0: 3.0, 1: 3.0}, {2: 3.5, 3: 3.5})
    assert result is not None
    assert (result.mean, result.p, result.low, result.high) == (-0.5, 0.0, -0.5, -0.5)


def test_differences_that_only_average_to_zero_are_not_identical() -> None:
    result = made([0.1, -0.1], base=0.0)
    assert result.mean == 0
    assert not result.identical


@pytest.mark.parametrize("margin", [0.02, 0.1])
def test_equivalence_is_the_worse_of_two_one_sided_tests(margin: float) -> None:
    from scipy import stats

    differences = [0.010, 0.030, -0.005, 0.022]
    lower = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    upper = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    result = made(differences, margin, base=0.0)
    assert result.equivalent_p == pytest.approx(max(lower, upper), abs=1e-12)
    mirrored = made([-x for x in differences], margin, base=0.0)
    assert mirrored.equivalent_p == pytest.approx(result.equivalent_p, abs=1e-12)


def test_no_margin_no_equivalence() -> None:
    assert made([0.01, 0.02, 0.03]).equivalent_p is None


@pytest.mark.parametrize("margin", [0.0, -0.01, math.nan, math.inf])
def test_a_margin_that_is_not_above_zero_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match=r"equivalence margin is .*above zero"):
        made([0.01, 0.02], margin)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_refused_by_seed(loss: float) -> None:
    with pytest.raises(ValueError, match="seed 7"):
        contrast({0: 3.0, 7: loss}, {0: 3.1})


def holm(*p_values: float) -> list[float | None]:
    """The adjusted p of contrasts with these p."""
    family = [replace(made([0.1, 0.2, 0.3]), p=p) for p in p_values]
    return [item.adjusted_p if item else None for item in adjust(family)]


def test_holm_by_hand_keeps_order_and_never_decreases() -> None:
    # Sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, and the last is raised to .06.
    assert holm(0.01, 0.04, 0.03, 0.005) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_caps_at_one_and_leaves_a_single_p_alone() -> None:
    assert holm(0.6, 0.7) == [1.0, 1.0]
    assert holm(0.03) == [0.03]
    assert holm() == []


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_holm_refuses_what_is_no_p_value(p: float) -> None:
    with pytest.raises(ValueError, match="outside 0 to 1"):
        holm(0.5, p)


def test_adjusting_counts_contrasts_that_have_no_p() -> None:
    tested, failed, single = made([0.1, 0.2, 0.3]), None, made([0.1])
    first, second, third = adjust([tested, failed, single])
    assert first is not None and third is not None and tested.p is not None
    assert first.adjusted_p == pytest.approx(3 * tested.p)
    assert second is None
    assert third.adjusted_p is None
