"""Tuning: the same trials for every arm, then the reporting runs at what they chose."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import Override

from lm_experiments.report.tuning import pick_best
from lm_experiments.training.files import read_result

from .declared import Study, Tuning
from .jobs import tuned_jobs, tuning_jobs
from .preview import preview
from .record import Planned

if TYPE_CHECKING:
    from .sweeper import PlanningSweeper


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
    sweeper.train(trials, [], study.record())
    for _ in range(study.tune.limit):
        wider = _grown(study.tune, _chosen(study.tune, trials))
        if wider == study.tune:
            break
        print(f"A winner sits on the edge: every arm is tried at {_new(wider, study.tune)} too.")
        more = sweeper.plan(tuning_jobs(study, overrides, name, _new(wider, study.tune)))
        study = dataclasses.replace(study, tune=wider)
        sweeper.train(more, [], study.record())
        trials += more
    assert study.tune is not None
    chosen = _chosen(study.tune, trials)
    for arm in [arm for arm, found in chosen.items() if found["failed"]]:
        print(
            f"Trials of {arm!r} failed at its best value too; it is reported at that all the same."
        )
    best = {arm: float(found["value"]) for arm, found in chosen.items()}
    runs = sweeper.plan(tuned_jobs(study, overrides, name, best))
    sweeper.train(runs, [], _record(study, chosen))
    return [*trials, *runs]


def _chosen(tune: Tuning, trials: Sequence[Planned]) -> dict[str, dict[str, Any]]:
    """Return each arm's best value, and whether it sits on the edge of the grid."""
    losses: dict[str, dict[float, list[float | None]]] = {}
    for trial in trials:
        result = read_result(trial.run.directory) or {}
        value = float(trial.job.setting[tune.key])
        arm = losses.setdefault(trial.run.config.arm, {})
        arm.setdefault(value, []).append(_loss(result))
    return {arm: _best(by_value) for arm, by_value in losses.items()}


def _best(by_value: Mapping[float, Sequence[float | None]]) -> dict[str, Any]:
    best = pick_best(by_value)
    return {"value": best.value, "edge": best.edge, "failed": best.failed}


def _loss(result: Mapping[str, Any]) -> float | None:
    usable = result.get("status") == "done" and isinstance(result.get("val_loss"), float)
    bad = result.get("outcome") in ("diverged", "non-finite", "failed-at-init")
    return float(result["val_loss"]) if usable and not bad else None


def _grown(tune: Tuning, chosen: Mapping[str, Mapping[str, Any]]) -> Tuning:
    edges = {found["edge"] for found in chosen.values()}
    return tune.grown(low="low" in edges, high="high" in edges)


def _new(wider: Tuning, tune: Tuning) -> list[float]:
    return [value for value in wider.grid if value not in tune.grid]


def _record(study: Study, chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    record = study.record()
    record["tune"]["chosen"] = {arm: dict(found) for arm, found in chosen.items()}
    return record
