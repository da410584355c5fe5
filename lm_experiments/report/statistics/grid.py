"""The grid that a sweep's arms form, and the effects of its factors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lm_experiments.report.collect import Run, Sweep

if TYPE_CHECKING:
    from lm_experiments.report.statistics.factorial import Cell, Effects

FEWEST_FACTORS, FEWEST_COMMON_SEEDS = 2, 2


@dataclass(frozen=True)
class Grid:
    """Every combination of the levels of two or more keys, each of them one arm.

    `factors` maps each key to its levels, the baseline's first; `arms` maps each cell, its levels
    in the order of the factors, to the label of its arm.
    """

    factors: Mapping[str, tuple[str, ...]]
    arms: Mapping[tuple[str, ...], str]


def find_grid(sweep: Sweep, baseline: str) -> Grid | None:
    """The grid of all arms; None where they set different keys or some combinations only.

    A key that is the same in all arms is no factor.
    """
    given = {run.arm: run.overrides for run in sweep.runs}
    reference = given.get(baseline, {})
    if set(given) != set(sweep.arms) or any(o.keys() != reference.keys() for o in given.values()):
        return None
    arms = (reference, *given.values())
    levels = {key: tuple(dict.fromkeys(arm[key] for arm in arms)) for key in reference}
    factors = {key: found for key, found in levels.items() if len(found) > 1}
    cells = {tuple(own[key] for key in factors): arm for arm, own in given.items()}
    whole = len(cells) == len(given) == math.prod(map(len, factors.values()))
    return Grid(factors, cells) if whole and len(factors) >= FEWEST_FACTORS else None


def grid_effects(
    sweep: Sweep, baseline: str, runs: Mapping[str, Sequence[Run]], metric: str
) -> Effects | None:
    """Main effects and interactions of the sweep's grid, in the unit of the metric.

    None without a grid, before every run has ended, where a run fails, and where the cells have
    fewer than two seeds in common.
    """
    grid = find_grid(sweep, baseline)
    if grid is None or not sweep.complete or any(r.failing for arm in runs.values() for r in arm):
        return None
    losses: dict[Cell, dict[int, float]] = {
        cell: {run.seed: v for run in runs[arm] if (v := run.value(metric)) is not None}
        for cell, arm in grid.arms.items()
    }
    if len(set.intersection(*(set(cell) for cell in losses.values()))) < FEWEST_COMMON_SEEDS:
        return None
    # Imported here because numpy and scipy are slow to load.
    from lm_experiments.report.statistics.factorial import factorial_effects

    return factorial_effects(grid.factors, losses)
