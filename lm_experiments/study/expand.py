"""From the command line, or a declared study, to the overrides of each run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hydra.core.override_parser.types import Override

from lm_experiments.errors import InputError
from lm_experiments.fields import Use
from lm_experiments.rundir.study import Study
from lm_experiments.study.identity import arm_label, arm_overrides, sweep_name
from lm_experiments.study.keys import use_of

# Keys of the command line that say which sweep, and so are not passed on to its runs.
OF_THE_SWEEP = ("study", "plan", "name")

REPORT, TUNED, TUNE = "report", "tuned", "tune"


@dataclass(frozen=True)
class Job:
    """One run to be: its overrides, and what it is for.

    Attributes:
        overrides: as typed, the run's sweep, arm and seed among them.
        role: ``report`` at the baseline's setting, ``tuned`` at the arm's own best, ``tune`` for a
            trial.
        setting: the values that tuning chose.
    """

    overrides: tuple[str, ...]
    role: str = REPORT
    setting: Mapping[str, float] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """What makes the job another than its neighbours, as typed."""
        return [text for text in self.overrides if use_of(_key(text)) not in (Use.NAME, Use.SEED)]


def swept_keys(overrides: Sequence[Override]) -> list[str]:
    """Return the keys given several values, seeds aside, in the order they were typed."""
    keys = [o.get_key_element() for o in overrides if o.is_sweep_override()]
    return [key for key in keys if key != "seed"]


def ad_hoc_jobs(overrides: Sequence[Override], name: str | None, arm: str | None) -> list[Job]:
    """Return a job for every combination of the values given."""
    swept = swept_keys(overrides)
    combinations = [list(job) for job in itertools.product(*map(_values, overrides))]
    fixed = [text for text in combinations[0] if _key(text) not in swept]
    name = name or sweep_name(swept, arm_overrides(fixed))
    jobs = []
    for combination in combinations:
        own = [text for text in arm_overrides(combination) if _key(text) in swept]
        kept = [text for text in combination if _key(text) not in OF_THE_SWEEP]
        jobs.append(Job((*kept, *_named(name, arm or arm_label(own), own))))
    return jobs


def study_jobs(study: Study, overrides: Sequence[Override], name: str | None) -> list[Job]:
    """Return a job for every arm and seed of a study, at the setting of the command line."""
    fixed = _fixed(overrides)
    return [
        _study_job(study, fixed, name, arm, seed, REPORT, {})
        for arm in study.arms
        for seed in seeds_of(study, overrides)
    ]


def tuning_jobs(
    study: Study, overrides: Sequence[Override], name: str | None, values: Sequence[float]
) -> list[Job]:
    """Return the trials of the tuned key at ``values``: every arm, every tuning seed."""
    assert study.tune is not None
    fixed = _fixed(overrides)
    return [
        _study_job(study, fixed, name, arm, seed, TUNE, {study.tune.key: value})
        for arm in study.arms
        for value in values
        for seed in study.tune.seeds
    ]


def tuned_jobs(
    study: Study, overrides: Sequence[Override], name: str | None, best: Mapping[str, float]
) -> list[Job]:
    """Return the reporting runs at the settings that tuning chose.

    Each arm runs at the baseline's best, to be compared at equal settings, and at its own.
    """
    assert study.tune is not None
    fixed = _fixed(overrides)
    settings = [(REPORT, arm, best[study.baseline]) for arm in study.arms]
    settings += [(TUNED, arm, best[arm]) for arm in study.arms]
    return [
        _study_job(study, fixed, name, arm, seed, role, {study.tune.key: value})
        for role, arm, value in settings
        for seed in seeds_of(study, overrides)
    ]


def seeds_of(study: Study, overrides: Sequence[Override]) -> list[int]:
    """Return the reporting seeds: those typed, or those declared."""
    typed = [o for o in overrides if o.get_key_element() == "seed"]
    if not typed:
        return study.seeds
    texts = [_value(text) for text in _values(typed[-1])]
    if not all(text.isdecimal() for text in texts):
        raise InputError(f"seed={','.join(texts)} must be whole numbers; type seed=0,1,2.")
    return [int(text) for text in texts]


def without_seed(job: Job) -> tuple[str, ...]:
    """Return the overrides that the runs of all seeds share."""
    return tuple(text for text in job.overrides if _key(text) != "seed")


def seed_of(job: Job) -> int | None:
    """Return the job's seed, None where its overrides name none."""
    seeds = [_value(text) for text in job.overrides if _key(text) == "seed"]
    return int(seeds[-1]) if seeds and seeds[-1].isdecimal() else None


def _study_job(
    study: Study,
    fixed: Sequence[str],
    name: str | None,
    arm: str,
    seed: int,
    role: str,
    setting: Mapping[str, float],
) -> Job:
    own = study.arms[arm]
    tuned = [f"{key}={value!r}" for key, value in setting.items()]
    if clash := {_key(text) for text in own} & set(setting):
        raise InputError(f"Arm {arm!r} sets {clash.pop()}, which study.tune tunes for all arms.")
    # Typed later wins: the study's own, then the command line's, then what makes the arm.
    merged = {_key(text): text for text in [*study.overrides, *fixed, *tuned, *own]}
    name = name or sweep_name([study.name], arm_overrides(fixed))
    control = [f"control={quoted(arm)}"] if arm in study.controls else []
    named = _named(name, arm, own)
    return Job((*merged.values(), f"seed={seed}", *control, *named), role, setting)


def _fixed(overrides: Sequence[Override]) -> list[str]:
    """Return the command line's overrides of a study; only seeds may have several values."""
    if swept := swept_keys(overrides):
        raise InputError(
            f"{swept[0]} is given several values beside a study, whose arms are declared; add "
            "arms to the study's file, or leave study=... out."
        )
    own = [o for o in overrides if o.get_key_element() not in ("seed", *OF_THE_SWEEP)]
    return [text for override in own for text in _values(override)]


def _values(override: Override) -> list[str]:
    """Return an override as it stands, or each of the overrides that a list of values means."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise InputError(f"{override.input_line} is not a list of values; type {key}=a,b,c.")
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _key(override: str) -> str:
    return override.split("=", 1)[0]


def _value(override: str) -> str:
    return override.split("=", 1)[1]


def _named(name: str, arm: str, own: Sequence[str]) -> list[str]:
    listed = ",".join(map(quoted, own))
    return [f"name={quoted(name)}", f"arm={quoted(arm)}", f"arm_overrides=[{listed}]"]


def quoted(text: str) -> str:
    """Return the text as Hydra's command line reads it back."""
    return json.dumps(text, ensure_ascii=False)
