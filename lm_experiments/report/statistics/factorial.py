"""Main effects and two-way interactions of a full grid of factors over paired seeds.

Every effect is a contrast of the cells, worked out for each seed by itself; its mean, interval
and p come from a t test over the seeds. What all cells of a seed share cancels, and no equal
variances are assumed between cells. This is the repeated-measures analysis with a separate error
term for each effect (Maxwell & Delaney 2004, ch. 11), with seeds as subjects.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.estimates import Array, holm_adjusted, plain_t

Level = Hashable
Cell = tuple[Level, ...]


@dataclass(frozen=True)
class Effect:
    """One effect, in nats per token; below zero the levels lower the loss.

    A main effect (one factor) is the loss at `levels[0]` minus that at the factor's first level,
    averaged over all cells of the other factors. An interaction (two factors) is how much more
    the first factor's step costs at `levels[1]` than at the second factor's first level, averaged
    likewise; zero where effects add up. `low` to `high` is the 95 % interval and `adjusted_p` is
    Holm's over all effects of the grid. `by_seed` holds the effect of each seed.
    """

    factors: tuple[str, ...]
    levels: tuple[Level, ...]
    mean: float
    low: float
    high: float
    p: float
    adjusted_p: float
    by_seed: tuple[float, ...]


@dataclass(frozen=True)
class Effects:
    """All effects of a grid, over the `seeds` which every cell has.

    `factors` holds the levels of each factor, the reference level first. `incomplete_seeds` are
    left out, as one cell or more has no loss for them.
    """

    factors: Mapping[str, Sequence[Level]]
    effects: tuple[Effect, ...]
    seeds: tuple[int, ...]
    incomplete_seeds: tuple[int, ...]

    @property
    def main(self) -> tuple[Effect, ...]:
        """The main effects."""
        return tuple(effect for effect in self.effects if len(effect.factors) == 1)

    def interactions(self, main: Effect) -> tuple[Effect, ...]:
        """The interactions of this main effect's step with those of the other factors."""
        step = (main.factors[0], main.levels[0])
        pairs = (effect for effect in self.effects if len(effect.factors) == 2)
        return tuple(e for e in pairs if step in zip(e.factors, e.levels, strict=True))

    def by_level(self, main: Effect, other: str) -> dict[Level, float]:
        """The main effect's step at each level of another factor, averaged over the rest."""
        more = {
            level: effect.mean
            for effect in self.interactions(main)
            for factor, level in zip(effect.factors, effect.levels, strict=True)
            if factor == other
        }
        levels = self.factors[other]
        # The main effect is the mean of its step over all levels, the reference level included.
        at_reference = main.mean - sum(more.values()) / len(levels)
        return {level: at_reference + more.get(level, 0.0) for level in levels}


def factorial_effects(
    factors: Mapping[str, Sequence[Level]], losses: Mapping[Cell, Mapping[int, float]]
) -> Effects:
    """Main effects of every factor and interactions of every pair of factors.

    `factors` names each factor's levels, the reference level first; `losses` holds the loss by
    seed of every cell, its levels in the order of the factors. Raises `InputError` for a cell
    that is missing or unknown, for a loss that is not finite, and below two common seeds.
    """
    _check_grid(factors, losses)
    common = sorted(set.intersection(*(set(cell) for cell in losses.values())))
    partial = sorted({seed for cell in losses.values() for seed in cell} - set(common))
    if len(common) < 2:
        raise InputError(
            f"Only {len(common)} seed of the grid has a loss in every cell; two or more are "
            "needed, so run the missing cells of the other seeds."
        )
    cells = [[losses[cell][seed] for seed in common] for cell in product(*factors.values())]
    sizes = [len(levels) for levels in factors.values()]
    grid = np.array(cells, dtype=float).reshape(*sizes, len(common))
    places = list(_places(sizes))
    by_seed = np.array([_contrast(grid, place) for place in places])
    return Effects(factors, _tested(factors, places, by_seed), tuple(common), tuple(partial))


def _check_grid(
    factors: Mapping[str, Sequence[Level]], losses: Mapping[Cell, Mapping[int, float]]
) -> None:
    for name, levels in factors.items():
        if len(levels) < 2 or len(set(levels)) < len(levels):
            raise InputError(
                f"Factor {name} has the levels {list(levels)}; give two or more different ones."
            )
    wanted = set(product(*factors.values()))
    if not factors or (wrong := wanted ^ losses.keys()):
        cells = sorted(map(str, wrong)) if factors else "no factors"
        raise InputError(
            f"The grid is not complete: {cells} missing or unknown; main effects need every "
            "combination of the factors' levels exactly once, so run or remove these."
        )
    for cell, by_seed in losses.items():
        if not np.isfinite(list(by_seed.values())).all():
            raise InputError(
                f"Cell {cell} has a loss that is not finite; effects are not defined where runs "
                "fail, so take the failing level out of the grid."
            )


def _places(sizes: Sequence[int]) -> Iterator[dict[int, int]]:
    """The effects as {axis: level}: all main effects, then all interactions."""
    for axes in (*combinations(range(len(sizes)), 1), *combinations(range(len(sizes)), 2)):
        for levels in product(*(range(1, sizes[axis]) for axis in axes)):
            yield dict(zip(axes, levels, strict=True))


def _contrast(grid: Array, place: Mapping[int, int]) -> Array:
    """The effect of each seed: a difference along the axes of `place`, a mean along the rest."""
    for axis in range(grid.ndim - 1):
        kept = [place[axis]] if axis in place else list(range(grid.shape[axis]))
        found = grid.take(kept, axis=axis).mean(axis=axis, keepdims=True)
        grid = found - grid.take([0], axis=axis) if axis in place else found
    return grid.reshape(-1)


def _tested(
    factors: Mapping[str, Sequence[Level]], places: Sequence[Mapping[int, int]], by_seed: Array
) -> tuple[Effect, ...]:
    names, levels = list(factors), list(factors.values())
    estimates = plain_t(by_seed)
    p = estimates.p()
    (low, high), adjusted = estimates.interval(), holm_adjusted(p)
    return tuple(
        Effect(
            tuple(names[axis] for axis in place),
            tuple(levels[axis][level] for axis, level in place.items()),
            float(estimates.mean[at]),
            float(low[at]),
            float(high[at]),
            float(p[at]),
            float(adjusted[at]),
            tuple(by_seed[at].tolist()),
        )
        for at, place in enumerate(places)
    )
