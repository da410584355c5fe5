"""The search over one value: what the trials of each arm chose, and where the grid has to grow."""

from __future__ import annotations

from collections.abc import Sequence

from lm_experiments.report.statistics.tuning import pick_best
from lm_experiments.rundir.results import read_result
from lm_experiments.rundir.study import Chosen, Tuning
from lm_experiments.study.plan import PlannedRun


def choose(tune: Tuning, trials: Sequence[PlannedRun]) -> dict[str, Chosen]:
    """Return each arm's best value, and whether it lies at an end of the grid."""
    losses: dict[str, dict[float, list[float | None]]] = {}
    for trial in trials:
        value = float(trial.spec.setting[tune.key])
        arm = losses.setdefault(trial.config.arm, {})
        result = read_result(trial.directory)
        arm.setdefault(value, []).append(result.val_loss if result and result.usable else None)
    found = {arm: pick_best(by_value) for arm, by_value in losses.items()}
    return {arm: Chosen(best.value, best.edge, best.failed) for arm, best in found.items()}


def new_values(tune: Tuning, chosen: dict[str, Chosen]) -> list[float]:
    """Return the values by which the grid grows, for all arms alike, where a winner is on its edge.

    Empty where the grid has grown as often as it may.
    """
    edges = {found.edge for found in chosen.values()}
    grown = tune.grown(low="low" in edges, high="high" in edges)
    return [value for value in grown.grid if value not in tune.grid]
