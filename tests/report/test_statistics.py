"""Means, intervals and paired differences against values worked out by hand or published."""

from __future__ import annotations

import pytest

from lm_experiments.report.statistics.contrasts import contrast, summarize


def test_three_losses_give_the_known_mean_sd_and_interval() -> None:
    summary = summarize([3.10, 3.20, 3.30])
    assert summary is not None
    assert summary.mean == pytest.approx(3.20)
    assert summary.sd == pytest.approx(0.10)  # ddof 0 would give 0.0816
    assert summary.n == 3
    assert summary.half_width == pytest.approx(0.248, abs=5e-4)


@pytest.mark.parametrize(("n", "ratio"), [(3, 2.48), (5, 1.24), (8, 0.84)])
def test_half_width_in_units_of_the_sd(n: int, ratio: float) -> None:
    summary = summarize(range(n))
    assert summary is not None and summary.sd is not None and summary.half_width is not None
    assert summary.half_width / summary.sd == pytest.approx(ratio, abs=5e-3)


def test_one_value_has_no_spread_and_no_interval() -> None:
    summary = summarize([3.1])
    assert summary is not None
    assert (summary.mean, summary.sd, summary.n, summary.half_width) == (3.1, None, 1, None)


def test_no_values_have_no_summary() -> None:
    assert summarize([]) is None


def test_differences_are_paired_over_common_seeds_only() -> None:
    difference = contrast({0: 3.0, 1: 3.3, 7: 9.0}, {0: 3.1, 1: 3.2, 2: 1.0})
    assert difference is not None
    assert difference.n == 2
    assert difference.mean == pytest.approx(0.0)
    assert difference.sd == pytest.approx(0.02**0.5)
