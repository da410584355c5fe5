"""Moderated t tests: worked cases, and how often thousands of simulated studies are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma, polygamma, stdtr
from simulated_noise import SPREADS, differences

from lm_experiments.report.statistics.estimates import Array, holm_adjusted, plain_t
from lm_experiments.report.statistics.moderated import moderated_t

STUDIES = 20_000  # The standard error of a rate of .05 is .0015.


def false_claims(p_values: Array) -> float:
    return float((holm_adjusted(p_values) <= 0.05).any(axis=-1).mean())


def limma_p(values: Array) -> Array:
    """limma's moderated t (Smyth 2004, section 6.2), the prior fitted to the arms' variances."""
    degrees = values.shape[-1] - 1
    variance = values.var(axis=-1, ddof=1)
    logs = np.log(variance) - digamma(degrees / 2) + np.log(degrees / 2)
    grid = np.concatenate([[1e6], np.exp(np.linspace(8, -4, 400))])  # Candidates for d0 / 2.
    excess = logs.var(axis=-1, ddof=1) - polygamma(1, degrees / 2)
    half = grid[np.searchsorted(polygamma(1, grid), excess).clip(0, len(grid) - 1)][..., None]
    prior = np.exp(logs.mean(axis=-1, keepdims=True) + digamma(half) - np.log(half))
    posterior = (2 * half * prior + degrees * variance) / (2 * half + degrees)
    t = values.mean(axis=-1) / np.sqrt(posterior / values.shape[-1])
    return np.asarray(
        2 * stdtr(np.minimum(2 * half + degrees, variance.shape[-1] * degrees), -np.abs(t))
    )


def test_one_arm_is_the_plain_test() -> None:
    values = differences("equal", 10, 1, 5)
    ours, plain = moderated_t(values), plain_t(values)
    np.testing.assert_allclose(ours.error, plain.error)
    np.testing.assert_allclose(ours.degrees, plain.degrees)


def test_a_quiet_arm_borrows_spread_and_a_noisy_one_keeps_its_own() -> None:
    values = np.array([[-0.1, 0.0, 0.1], [-1.0, 0.0, 1.0]])  # Variances 0.01 and 1.
    assert (3 * moderated_t(values).error ** 2).tolist() == pytest.approx([0.208, 1.0])


def test_degrees_follow_the_correlation_that_the_baseline_causes() -> None:
    same = np.array([[-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]])
    unrelated = np.array([[-1.0, 0.0, 1.0], [1.0, -2.0, 1.0]])
    assert moderated_t(same).degrees.tolist() == pytest.approx([2.0, 2.0])
    # Weights .6 and .4, half of the mean is the arm itself: 2 / (.36 + .64 / 2).
    assert moderated_t(unrelated).degrees.tolist() == pytest.approx([2 / 0.68, 2 / 0.68])


def test_missing_and_identical_arms_lend_nothing() -> None:
    values = differences("equal", 1, 2, 3)[0]
    more = np.concatenate([values, [[np.nan, 0.0, 1.0]], np.zeros((1, 3))])
    np.testing.assert_allclose(moderated_t(more).error[:2], moderated_t(values).error)
    np.testing.assert_allclose(moderated_t(more).degrees[:2], moderated_t(values).degrees)
    assert moderated_t(more).p()[2:].tolist() == [1.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPREADS)
@pytest.mark.parametrize("arms", [2, 3, 4, 12])
@pytest.mark.parametrize("seeds", [3, 5])
def test_false_claims_stay_below_five_per_cent(kind: str, arms: int, seeds: int) -> None:
    rate = false_claims(moderated_t(differences(kind, STUDIES, arms, seeds)).p())
    assert rate <= 0.05, rate


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one arm at 3x", "one arm at 10x"])
def test_limmas_fitted_prior_would_claim_too_much(kind: str) -> None:
    values = differences(kind, STUDIES, 12, 3)
    assert false_claims(limma_p(values)) > 0.1
    assert false_claims(moderated_t(values).p()) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "low", "high"), [("equal", 0.94, 0.97), ("skewed", 0.95, 0.99)])
@pytest.mark.parametrize("seeds", [3, 5])
def test_moderated_intervals_cover(kind: str, low: float, high: float, seeds: int) -> None:
    ends = moderated_t(differences(kind, STUDIES, 4, seeds)).interval()
    covered = ((ends[0] <= 0) & (ends[1] >= 0)).mean(axis=0)
    assert np.all((covered > low) & (covered < high)), covered


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPREADS)
@pytest.mark.parametrize("seeds", [3, 5])
def test_plain_intervals_cover_whatever_the_spreads(kind: str, seeds: int) -> None:
    low, high = plain_t(differences(kind, STUDIES, 4, seeds)).interval()
    covered = ((low <= 0) & (high >= 0)).mean(axis=0)
    assert np.all((covered > 0.93) & (covered < 0.97)), covered


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arms", "seeds", "plain", "moderated"),
    [(4, 3, 0.27, 0.53), (4, 5, 0.90, 0.96), (12, 3, 0.10, 0.39), (12, 5, 0.65, 0.89)],
)
def test_power_at_four_run_sds(arms: int, seeds: int, plain: float, moderated: float) -> None:
    values = differences("equal", STUDIES, arms, seeds) + 4.0 * (np.arange(arms) == 0)[:, None]
    rates = [
        float((holm_adjusted(found.p())[:, 0] <= 0.05).mean())
        for found in (plain_t(values), moderated_t(values))
    ]
    assert rates == pytest.approx([plain, moderated], abs=0.02)
