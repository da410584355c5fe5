"""What tuning adds to the noise of a reported loss, and how much an arm needs its tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.estimates import Array
from lm_experiments.report.statistics.tuning import FEWEST_TUNING_SEEDS

MOST_ENUMERATED = 7  # 1,716 different resamples; beyond, so many are drawn at random:
RESAMPLES = 20_000


@dataclass(frozen=True)
class ChoiceNoise:
    """How the best value of a grid varies with the tuning seeds that chose it.

    `shares` holds, in the order of the grid, how often each value is best over resampled tuning
    seeds, and `variance` is that of the loss which the choice brings, in (nats per token)^2.
    """

    shares: tuple[float, ...]
    variance: float


def choice_noise(losses: ArrayLike) -> ChoiceNoise:
    """The noise of choosing a value by tuning seeds, from losses of shape (values, tuning seeds).

    Resamples the tuning seeds, whole columns at a time as all values of the grid share them, and
    chooses anew for each resample (all of them, with their probabilities, up to seven seeds).
    The loss of a choice is its mean over all tuning seeds. A choice that another draw of the
    tuning seeds would overturn adds variance; a clear choice adds none. Resampling k seeds
    shrinks the variance of a mean by (k - 1) / k, which is undone. On a flat grid, where the
    choice does not matter, the means differ by noise alone and the variance is too large.

    A failed trial is infinite: its value then loses. Raises `InputError` below three tuning
    seeds, for NaN, and where no value has a finite mean.
    """
    grid = np.asarray(losses, dtype=float)
    _check_grid(grid)
    means = grid.mean(axis=1)
    chances, chosen = _resampled_choices(grid)
    shares = np.bincount(chosen, weights=chances, minlength=len(grid))
    usable = shares > 0
    average = float(shares[usable] @ means[usable])
    variance = float(shares[usable] @ (means[usable] - average) ** 2)
    correction = grid.shape[1] / (grid.shape[1] - 1)
    return ChoiceNoise(tuple(shares.tolist()), variance * correction)


def choice_error(
    error: float, degrees: float, choices: Sequence[ChoiceNoise], tuning_seeds: int
) -> tuple[float, float]:
    """A standard error of reported runs and its degrees of freedom, with the noise of choices.

    The variances add up, as tuning seeds and reported seeds are different runs; degrees of
    freedom after Satterthwaite (1946). These may be more than without the choices; kept from that,
    simulated intervals cover more than 97 %.
    """
    terms = [(error**2, degrees), *((choice.variance, tuning_seeds - 1) for choice in choices)]
    variance = math.fsum(part for part, _ in terms)
    spread = math.fsum(part**2 / own for part, own in terms)
    return math.sqrt(variance), variance**2 / spread if spread > 0 else degrees


def sensitivity(losses: ArrayLike, initial_loss: float) -> float:
    """Learning-rate sensitivity (Wortsman et al. 2023): mean excess loss over the grid.

    `losses` has shape (values,): the final loss at each value of the grid, in nats per token, NaN
    or infinite where training diverged. A loss above the initial one counts as the initial one,
    and the best loss is subtracted from the mean: 0 means that every value is as good as the
    best. Depends on the range of the grid, so compare only arms tuned over the same grid. Raises
    `InputError` for an empty grid and for one without a finite loss.
    """
    grid = np.asarray(losses, dtype=float)
    if not grid.size or not np.isfinite(grid).any() or not math.isfinite(initial_loss):
        raise InputError(
            f"The losses {grid.tolist()} from an initial loss of {initial_loss} have no "
            "sensitivity; give a finite initial loss and a grid with one finite loss or more."
        )
    capped = np.minimum(np.where(np.isnan(grid), np.inf, grid), initial_loss)
    return float(capped.mean() - capped.min())


def _check_grid(grid: Array) -> None:
    if grid.ndim != 2 or grid.shape[1] < FEWEST_TUNING_SEEDS:
        raise InputError(
            f"The grid has the shape {grid.shape}; give (values, tuning seeds), with "
            f"{FEWEST_TUNING_SEEDS} tuning seeds or more."
        )
    if np.isnan(grid).any() or not np.isfinite(grid).all(axis=1).any():
        raise InputError(
            "No value of the grid has a finite loss for all tuning seeds, or a loss is NaN; write "
            "float('inf') for a trial that failed, and tune over a grid that trains."
        )


def _resampled_choices(grid: Array) -> tuple[Array, NDArray[np.intp]]:
    """The chance of every resample of the tuning seeds, and the place of its best value."""
    chances, counts = _resamples(grid.shape[1])
    # As in `tuning.pick_best`, a value with a failed trial loses to every value without one.
    sums = np.where(
        np.isfinite(grid).all(axis=1), counts @ np.where(np.isfinite(grid), grid, 0.0).T, np.inf
    )
    return chances, sums.argmin(axis=1)


def _resamples(seeds: int) -> tuple[Array, NDArray[np.intp]]:
    """How often each resample draws each seed, shape (resamples, seeds), and its chance."""
    if seeds > MOST_ENUMERATED:
        drawn = np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES)
        return np.full(RESAMPLES, 1 / RESAMPLES), drawn
    draws = np.array(list(combinations_with_replacement(range(seeds), seeds)))
    counts = (draws[:, :, None] == np.arange(seeds)).sum(axis=1)
    orders = [
        math.factorial(seeds) / math.prod(map(math.factorial, row)) for row in counts.tolist()
    ]
    return np.array(orders) / float(seeds) ** seeds, counts
