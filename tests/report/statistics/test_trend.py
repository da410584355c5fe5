"""The slope of a difference over rungs, against worked values, and its verdict."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from simulated_ladders import COMPUTE, rung

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.contrasts import Contrast
from lm_experiments.report.statistics.trend import judged, slope_weights, trend

QUIET = ((0.001, -0.002, 0.001), (-0.001, 0.001, 0.0), (0.0005, -0.001, 0.0005))


def rungs(*means: float, noise: float = 1.0) -> list[Contrast]:
    """Three rungs with these mean differences, and a little noise of three seeds."""
    return [rung([mean + noise * d for d in own]) for mean, own in zip(means, QUIET, strict=True)]


def verdict(*means: float, noise: float = 1.0) -> str:
    [found] = judged([trend(COMPUTE, rungs(*means, noise=noise))])
    assert found is not None
    return found.verdict


def test_the_slope_is_the_mean_of_each_seeds_own_line() -> None:
    compute = (2e12, 3e12, 2.4e13)
    found = trend(compute, rungs(0.265, 0.153, 0.084))
    assert found is not None
    by_seed = np.array([one.differences for one in rungs(0.265, 0.153, 0.084)])
    slopes = np.polyfit(np.log2(compute), by_seed, 1)[0]
    assert found.slope.differences == pytest.approx(slopes.tolist())
    wanted = stats.ttest_1samp(slopes, 0.0)
    assert found.slope.p == pytest.approx(wanted.pvalue)
    assert (found.slope.low, found.slope.high) == pytest.approx(tuple(wanted.confidence_interval()))
    assert (found.first.mean, found.last.mean) == pytest.approx((0.265, 0.084))
    assert found.level.mean == pytest.approx((0.265 + 0.084) / 2)


def test_a_slope_is_per_doubling_of_compute() -> None:
    assert np.dot(slope_weights(COMPUTE), [0.3, 0.2, 0.1]) == pytest.approx(-0.05)


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.265, 0.153, 0.084), "shrinks"),
        ((-0.069, -0.03, -0.002), "shrinks"),
        ((0.1, 0.09, 0.08), "shrinks"),
        ((0.0, 0.02, 0.05), "grows"),
        ((-0.02, -0.04, -0.06), "grows"),
        ((0.05, 0.0, -0.05), "flips"),
        ((0.05, 0.05, 0.05), "holds"),
        ((-0.05, -0.05, -0.05), "holds"),
        # Back where it began: no slope, and yet nothing that holds.
        ((0.05, 0.01, 0.05), "unresolved"),
        ((0.0, 0.0, 0.0), "unresolved"),
    ],
)
def test_the_verdict_is_the_rule(means: tuple[float, float, float], expected: str) -> None:
    assert verdict(*means) == expected


def test_a_wide_interval_is_no_evidence_that_a_difference_holds() -> None:
    [found] = judged([trend(COMPUTE, rungs(0.05, 0.05, 0.05, noise=8.0))])
    assert found is not None and found.verdict == "unresolved"
    assert all(part.adjusted_p and part.adjusted_p < 0.05 for part in (found.first, found.last))
    assert verdict(0.265, 0.153, 0.084, noise=60.0) == "unresolved"


@pytest.mark.parametrize(
    ("means", "kept"),
    [
        ((0.05, 0.035, 0.05), True),
        ((0.05, 0.032, 0.05), False),
        ((0.05, 0.05, 0.032), False),
        ((0.05, 0.05, 0.074), True),
        ((0.05, 0.05, 0.078), False),
    ],
)
def test_two_thirds_must_be_left_at_every_later_rung(
    means: tuple[float, float, float], kept: bool
) -> None:
    found = trend(COMPUTE, rungs(*means, noise=0.1))
    assert found is not None and found.kept_p is not None
    assert (found.kept_p < 0.05) is kept


def test_only_seeds_that_all_rungs_have_count_and_two_give_no_verdict() -> None:
    known = rungs(0.05, 0.05, 0.05)
    fewer = rung([0.05, 0.051])
    [found] = judged([trend(COMPUTE, [known[0], fewer, known[2]])])
    assert found and (found.slope.n, found.slope.seeds) == (2, (0, 1))
    assert found.verdict == "exploratory, n = 2"
    [single] = judged([trend(COMPUTE, [rung([0.05])] * 3)])
    assert single and single.slope.half_width is None
    assert single.verdict == "exploratory, n = 1"


def test_every_contrast_of_the_ladder_makes_the_others_harder() -> None:
    one = trend(COMPUTE, rungs(0.03, 0.02, 0.01))
    assert one is not None and one.slope.p is not None
    [alone] = judged([one])
    among, *others = judged([one, None, None, None])
    assert alone is not None and among is not None
    assert among.slope.adjusted_p == pytest.approx(4 * one.slope.p)
    assert alone.slope.adjusted_p == one.slope.p
    assert others == [None, None, None]


def test_what_is_no_ladder_is_refused() -> None:
    with pytest.raises(InputError, match="3 rungs or more"):
        trend(COMPUTE[:2], rungs(0.1, 0.1, 0.1)[:2])
    with pytest.raises(InputError, match="must rise"):
        trend((1e12, 1e12, 2e12), rungs(0.1, 0.1, 0.1))
