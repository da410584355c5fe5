"""The smallest resolvable difference and the seeds needed, against values worked out elsewhere."""

from __future__ import annotations

import math

import pytest

from lm_experiments.report.statistics.power import smallest_resolvable


@pytest.mark.parametrize("n", [2, 3, 5, 8, 40])
@pytest.mark.parametrize("alpha", [0.05, 0.0125])
def test_at_the_smallest_resolvable_difference_the_power_is_as_asked(n: int, alpha: float) -> None:
    from scipy import integrate, stats

    delta = smallest_resolvable(0.2, n, power=0.8, alpha=alpha)
    assert delta is not None
    shift, critical = delta / 0.2 * math.sqrt(n), stats.t.ppf(1 - alpha / 2, n - 1)

    def found(u: float) -> float:
        wide = critical * math.sqrt(stats.chi2.ppf(u, n - 1) / (n - 1))
        return float(stats.norm.cdf(shift - wide) + stats.norm.cdf(-shift - wide))

    assert integrate.quad(found, 0, 1)[0] == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize(("ratio", "seeds"), [(0.3, 3), (0.5, 5), (0.75, 7), (1, 10), (2, 34)])
def test_published_numbers_of_seeds_resolve_a_difference_and_one_fewer_does_not(
    ratio: float, seeds: int
) -> None:
    enough, too_few = smallest_resolvable(ratio, seeds), smallest_resolvable(ratio, seeds - 1)
    assert enough is not None and too_few is not None
    assert enough <= 1 < too_few


def test_limits() -> None:
    assert smallest_resolvable(0.1, 1) is None
    assert smallest_resolvable(0.0, 3) == 0.0


@pytest.mark.parametrize("spread", [-0.1, math.nan, math.inf])
def test_an_impossible_spread_is_refused(spread: float) -> None:
    with pytest.raises(ValueError, match="spread"):
        smallest_resolvable(spread, 3)


@pytest.mark.parametrize(("power", "alpha"), [(0.05, 0.05), (1.0, 0.05), (0.8, 0.0)])
def test_an_impossible_power_is_refused(power: float, alpha: float) -> None:
    with pytest.raises(ValueError, match="0 < alpha < power < 1"):
        smallest_resolvable(0.1, 3, power, alpha)
