"""Tuning: the same trials for every arm, then the reporting runs at what they chose."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.override_parser.types import Override

from lm_experiments.report.statistics.tuning import pick_best
from lm_experiments.rundir.results import read_result
from lm_experiments.rundir.study import Chosen, Study, Tuning
from lm_experiments.study.expand import tuned_jobs, tuning_jobs
from lm_experiments.study.preview import preview
from lm_experiments.study.record import Planned

if TYPE_CHECKING:
    from lm_experiments.study.sweeper import PlanningSweeper


def tuned_study(
    sweeper: PlanningSweeper, study: Study, overrides: Sequence[Override]
) -> list[Planned]:
    """Train the trials, let the grid grow for all arms alike, then train the reporting runs.

    Returns:
        Every run of the study, or nothing where only the plan was asked for.
    """
    assert study.tune is not None
    name = sweeper.base.name
    trials = sweeper.plan(tuning_jobs(study, overrides, name, study.tune.grid))
    likely = dict.fromkeys(study.arms, study.tune.grid[len(study.tune.grid) // 2])
    reporting = sweeper.plan(tuned_jobs(study, overrides, name, likely))
    if not preview([*trials, *reporting], study, sweeper.backend, only=sweeper.base.plan):
        return []
    sweeper.train(trials, [], study)
    for _ in range(study.tune.limit):
        wider = _grown(study.tune, _chosen(study.tune, trials))
        if wider == study.tune:
            break
        print(f"A winner sits on the edge: every arm is tried at {_new(wider, study.tune)} too.")
        more = sweeper.plan(tuning_jobs(study, overrides, name, _new(wider, study.tune)))
        study = dataclasses.replace(study, tune=wider)
        sweeper.train(more, [], study)
        trials += more
    assert study.tune is not None
    chosen = _chosen(study.tune, trials)
    for arm in [arm for arm, found in chosen.items() if found.failed]:
        print(
            f"Trials of {arm!r} failed at its best value too; it is reported at that all the same."
        )
    best = {arm: found.value for arm, found in chosen.items()}
    runs = sweeper.plan(tuned_jobs(study, overrides, name, best))
    sweeper.train(runs, [], _with_choices(study, chosen))
    return [*trials, *runs]


def _chosen(tune: Tuning, trials: Sequence[Planned]) -> dict[str, Chosen]:
    """Return each arm's best value, and whether it sits on the edge of the grid."""
    losses: dict[str, dict[float, list[float | None]]] = {}
    for trial in trials:
        value = float(trial.job.setting[tune.key])
        arm = losses.setdefault(trial.run.config.arm, {})
        arm.setdefault(value, []).append(_loss(trial.run.directory))
    return {arm: _best(by_value) for arm, by_value in losses.items()}


def _best(by_value: Mapping[float, Sequence[float | None]]) -> Chosen:
    best = pick_best(by_value)
    return Chosen(best.value, best.edge, best.failed)


def _loss(directory: Path) -> float | None:
    result = read_result(directory)
    return result.val_loss if result and result.usable else None


def _grown(tune: Tuning, chosen: Mapping[str, Chosen]) -> Tuning:
    edges = {found.edge for found in chosen.values()}
    return tune.grown(low="low" in edges, high="high" in edges)


def _new(wider: Tuning, tune: Tuning) -> list[float]:
    return [value for value in wider.grid if value not in tune.grid]


def _with_choices(study: Study, chosen: Mapping[str, Chosen]) -> Study:
    assert study.tune is not None
    return dataclasses.replace(study, tune=dataclasses.replace(study.tune, chosen=dict(chosen)))
