"""Noise of tuning: worked resamples, sensitivity, and coverage of the interval that includes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.contrasts import Contrast, contrast, widened
from lm_experiments.report.statistics.estimates import holm_adjusted
from lm_experiments.report.statistics.tuning_noise import (
    ChoiceNoise,
    choice_error,
    choice_noise,
    sensitivity,
)

INF = float("inf")


def tuned_difference(
    differences: list[float], choices: Sequence[ChoiceNoise], tuning_seeds: int
) -> Contrast:
    """The contrast with these differences over seeds, the noise of the choices in its error."""
    values = dict(enumerate(differences))
    found = contrast(values, dict.fromkeys(values, 0.0))
    assert found is not None
    return widened(found, lambda e, d: choice_error(e, d, choices, tuning_seeds), None)


def test_a_clear_choice_adds_no_noise() -> None:
    found = choice_noise([[3.0, 3.1, 3.2], [3.5, 3.6, 3.7], [INF, 3.0, 3.0]])
    assert (found.shares, found.variance) == ((1.0, 0.0, 0.0), 0.0)


def test_shares_and_variance_over_all_resamples() -> None:
    # The first value is best unless the third seed is drawn twice or more: 7 of 27 resamples.
    found = choice_noise([[0.0, 0.0, 0.5], [0.3, 0.3, 0.0]])
    assert found.shares == pytest.approx((20 / 27, 7 / 27))
    between = (0.6 / 3 - 0.5 / 3) ** 2 * (20 / 27) * (7 / 27)
    assert found.variance == pytest.approx(between * 3 / 2)


def test_many_tuning_seeds_are_drawn_at_random_but_repeatably() -> None:
    losses = np.random.default_rng(0).normal(size=(4, 12))
    assert choice_noise(losses) == choice_noise(losses)
    few = choice_noise(losses[:, :7])
    assert sum(few.shares) == pytest.approx(1.0) and few.variance > 0


@pytest.mark.parametrize(
    "losses", [[[3.0, 3.1]], [3.0, 3.1, 3.2], [[3.0, 3.1, math.nan]], [[3.0, 3.1, INF]]]
)
def test_a_grid_without_three_finite_trials_is_refused(losses: list[list[float]]) -> None:
    with pytest.raises(InputError, match="tuning seeds"):
        choice_noise(losses)


def test_the_variances_of_runs_and_choices_add_up() -> None:
    noise = choice_noise([[0.0, 0.0, 0.5], [0.3, 0.3, 0.0]])
    differences = [0.05, 0.1, 0.15] * 3
    found = tuned_difference(differences, [noise, noise], tuning_seeds=3)
    of_runs = float(np.var(differences, ddof=1)) / 9
    assert found.mean == pytest.approx(0.1)
    assert found.error is not None
    assert found.error**2 == pytest.approx(of_runs + 2 * noise.variance)
    expected = found.error**4 / (of_runs**2 / 8 + 2 * noise.variance**2 / 2)
    assert found.degrees == pytest.approx(expected) and expected < 8


def test_sensitivity_is_the_mean_excess_loss_capped_at_the_initial_one() -> None:
    # Excess 0.2, 0, 0.6 and, for what diverged or ended above its start, 10 - 3 each.
    losses = [3.2, 3.0, 3.6, 12.0, math.nan]
    assert sensitivity(losses, 10.0) == pytest.approx((0.2 + 0.6 + 7 + 7) / 5)
    assert sensitivity([3.0, 3.0], 10.0) == 0.0


@pytest.mark.parametrize(("losses", "initial"), [([], 9.0), ([INF], 9.0), ([3.0], math.nan)])
def test_sensitivity_needs_a_loss(losses: list[float], initial: float) -> None:
    with pytest.raises(InputError, match="sensitivity"):
        sensitivity(losses, initial)


class TunedArms:
    """Simulated arms: the loss is quadratic in the place of the grid, with noise of sd .01."""

    places, sd = np.arange(-2, 3), 0.01

    def __init__(self, curvature: float, tuning_seeds: int, seeds: int) -> None:
        self.generator = np.random.default_rng(6)
        self.curvature, self.tuning_seeds, self.seeds = curvature, tuning_seeds, seeds

    def tuned(self, optimum: float, studies: int) -> tuple[np.ndarray, np.ndarray]:
        """Trial losses (studies, values, tuning seeds), and the true loss of each choice."""
        true = self.curvature * (self.places - optimum) ** 2
        shape = (studies, len(true), self.tuning_seeds)
        trials = true[:, None] + self.sd * self.generator.normal(size=shape)
        return trials, true[trials.mean(axis=2).argmin(axis=1)]

    def runs(self, chosen: np.ndarray) -> np.ndarray:
        noise = self.generator.normal(size=(len(chosen), self.seeds))
        return np.asarray(chosen[:, None] + self.sd * noise)


@pytest.mark.slow
@pytest.mark.parametrize("curvature", [0.005, 0.01, 0.02])
@pytest.mark.parametrize(("tuning_seeds", "seeds"), [(3, 5), (3, 10), (5, 10)])
def test_the_interval_with_tuning_noise_covers(
    curvature: float, tuning_seeds: int, seeds: int
) -> None:
    arms, studies, covered = TunedArms(curvature, tuning_seeds, seeds), 3000, [0, 0]
    truth = arms.tuned(0.45, 50_000)[1].mean() - arms.tuned(-0.2, 50_000)[1].mean()
    (ours, our_loss), (theirs, their_loss) = arms.tuned(0.45, studies), arms.tuned(-0.2, studies)
    values = arms.runs(our_loss) - arms.runs(their_loss)
    for row, a, b in zip(values, ours, theirs, strict=True):
        noise = [choice_noise(a), choice_noise(b)]
        for at, choices in enumerate(([], noise)):
            found = tuned_difference(row.tolist(), choices, tuning_seeds)
            assert found.low is not None and found.high is not None
            covered[at] += found.low <= truth <= found.high
    assert 0.93 < covered[1] / studies < 0.97
    assert covered[0] < covered[1]  # Without the noise of tuning it covers less.


@pytest.mark.slow
def test_false_claims_over_tuned_arms_that_do_nothing() -> None:
    arms, studies = TunedArms(0.01, 3, 10), 3000
    tuned = [arms.tuned(0.45, studies) for _ in range(5)]
    losses = [arms.runs(loss) for _, loss in tuned]
    p = np.ones((studies, 4, 2))
    for at in range(studies):
        noise = [choice_noise(trials[at]) for trials, _ in tuned]
        for arm in range(1, 5):
            row = (losses[arm][at] - losses[0][at]).tolist()
            choices = [noise[arm], noise[0]]
            p[at, arm - 1] = [tuned_difference(row, x, 3).p for x in ([], choices)]
    without, included = ((holm_adjusted(p[..., i]) <= 0.05).any(axis=-1).mean() for i in (0, 1))
    assert included <= 0.05 < without
