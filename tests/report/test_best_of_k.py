"""The choice among tuning trials and the expected best of k, against published values."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from lm_experiments.report.statistics.tuning import expected_best, pick_best

TRIALS = [1.4930, 1.3974, 1.3567, 1.3171, 1.3004]


def test_expected_best_of_the_published_trials() -> None:
    expected = [1.37292, 1.32637, 1.31104, 1.30374, 1.30040]
    assert expected_best(TRIALS) == pytest.approx(expected, abs=5e-6)


def test_expected_best_is_the_mean_minimum_over_every_subset() -> None:
    found = expected_best(TRIALS)
    for k in range(1, 6):
        subsets = [min(subset) for subset in combinations(TRIALS, k)]
        assert found[k - 1] == pytest.approx(sum(subsets) / len(subsets), abs=1e-12)


def test_a_failed_trial_counts_until_another_is_sure_to_be_drawn() -> None:
    assert expected_best([2.0, math.inf, 1.0]) == [math.inf, pytest.approx(4 / 3), 1.0]
    assert expected_best([2.0, math.inf]) == [math.inf, 2.0]
    assert expected_best([]) == []


def test_a_trial_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"NaN; write float\('inf'\)"):
        expected_best([1.0, math.nan])


def test_the_lowest_mean_over_tuning_seeds_is_picked() -> None:
    best = pick_best({1e-3: [1.0, 3.0], 3e-3: [1.8, 1.9], 1e-2: [2.5, 2.6]})
    assert (best.value, best.failed, best.edge) == (3e-3, 0, None)
    assert best.loss == pytest.approx(1.85)


@pytest.mark.parametrize("failure", [None, math.nan, math.inf])
def test_a_value_with_a_failed_trial_loses_to_all_without(failure: float | None) -> None:
    best = pick_best({1e-3: [9.0, 9.0], 3e-3: [1.0, failure], 1e-2: [8.0, 9.5]})
    assert (best.value, best.edge) == (1e-2, "high")


def test_equal_losses_go_to_the_smaller_value_in_any_order() -> None:
    assert pick_best({3e-3: [2.0], 1e-3: [2.0], 1e-2: [2.0]}).value == 1e-3


def test_a_best_value_at_either_end_of_the_grid_is_marked() -> None:
    grid = [1e-2, 1e-3, 3e-3]
    edges = [pick_best({v: [abs(v - best)] for v in grid}).edge for best in sorted(grid)]
    assert edges == ["low", None, "high"]
    assert pick_best({1e-3: [2.0]}).edge is None


def test_where_every_value_fails_the_one_that_fails_least_is_picked() -> None:
    best = pick_best({1e-3: [None, None], 3e-3: [None, 2.0], 1e-2: [None, 3.0]})
    assert (best.value, best.loss, best.failed) == (3e-3, 2.0, 1)
    hopeless = pick_best({1e-3: [None], 3e-3: [math.nan]})
    assert (hopeless.value, hopeless.loss, hopeless.failed) == (1e-3, None, 1)


@pytest.mark.parametrize(
    ("grid", "said"),
    [({}, "have no trials"), ({1e-3: []}, "0 "), ({1e-3: [1.0], 3e-3: [1.0, 2.0]}, "1 .*2 ")],
)
def test_unequal_or_missing_trials_are_refused(grid: dict[float, list[float]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pick_best(grid)
