"""From the command line, or a declared study, to the overrides of each run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hydra.core.override_parser.types import Override

from lm_experiments.errors import InputError
from lm_experiments.fields import Use
from lm_experiments.rundir.study import REPORT, TUNE, TUNED, Study
from lm_experiments.study.identity import arm_labels, arm_overrides, sweep_name
from lm_experiments.study.keys import use_of
from lm_experiments.study.words import quoted

# An arm of a study, a seed, a role, and the values that tuning set.
Cell = tuple[str, int, str, Mapping[str, float]]


@dataclass(frozen=True)
class RunSpec:
    """A run as it is declared: its overrides, and its role in the sweep.

    Attributes:
        overrides: as typed, the run's sweep, arm and seed among them.
        role: one of `rundir.study.ROLES`.
        setting: the values that tuning chose.
        common: those of the overrides that do not make the arm, which all arms share.
    """

    overrides: tuple[str, ...] = ()
    role: str = REPORT
    setting: Mapping[str, float] = field(default_factory=dict)
    common: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The overrides that tell the run from its neighbours, as typed."""
        return [text for text in self.overrides if use_of(key_of(text)) not in (Use.NAME, Use.SEED)]

    @property
    def own(self) -> list[str]:
        """The overrides that make the arm."""
        return [text for text in self.words if text not in self.common]

    @property
    def arm(self) -> str:
        """The label of its row."""
        labels = [text.removeprefix("arm=") for text in self.overrides if key_of(text) == "arm"]
        return str(json.loads(labels[-1]))

    @property
    def seed(self) -> int | None:
        """The seed, None where the overrides name none, or no plain number."""
        seeds = [text.removeprefix("seed=") for text in self.overrides if key_of(text) == "seed"]
        return int(seeds[-1]) if seeds and seeds[-1].isdecimal() else None

    @property
    def shared(self) -> tuple[str, ...]:
        """The overrides that the runs of all seeds have in common."""
        return tuple(t for t in self.overrides if self.seed is None or key_of(t) != "seed")


def swept_keys(overrides: Sequence[Override]) -> list[str]:
    """Return the keys given several values, seeds aside, in the order they were typed."""
    keys = [o.get_key_element() for o in overrides if o.is_sweep_override()]
    return [key for key in keys if key != "seed"]


def grid_specs(overrides: Sequence[Override], name: str | None, arm: str | None) -> list[RunSpec]:
    """Return a run for every combination of the values given."""
    swept = swept_keys(overrides)
    _check_one_value(overrides)
    combinations = [list(values) for values in itertools.product(*map(_values, overrides))]
    fixed = [text for text in combinations[0] if key_of(text) not in swept]
    name = name or sweep_name(swept, arm_overrides(fixed))
    owns = [[t for t in arm_overrides(texts) if key_of(t) in swept] for texts in combinations]
    specs = []
    for combination, own, label in zip(combinations, owns, arm_labels(owns), strict=True):
        kept = [text for text in combination if not _of_the_sweep(key_of(text))]
        common = tuple(text for text in kept if key_of(text) not in (*swept, "seed"))
        specs.append(RunSpec((*kept, *_named(name, arm or label, own)), common=common))
    return specs


def study_specs(
    study: Study, overrides: Sequence[Override], name: str | None, cells: Iterable[Cell]
) -> list[RunSpec]:
    """Return the runs of some cells of a study, at the setting of the command line."""
    fixed = _fixed(overrides)
    keys = [o.get_key_element().lstrip("+") for o in overrides]
    # A study with a ladder in its file has its name alone.
    climbed = [f"study.ladder={study.ladder.by}"] if study.ladder and "study.ladder" in keys else []
    name = name or sweep_name([study.name], [*climbed, *arm_overrides(fixed)])
    specs = []
    for arm, seed, role, setting in cells:
        own = study.arms[arm]
        tuned = [f"{key}={value!r}" for key, value in setting.items()]
        if clash := {key_of(text) for text in own} & set(setting):
            key = clash.pop()
            raise InputError(f"Arm {arm!r} sets {key}, which study.tune tunes for all arms.")
        # Typed later wins: the study's own, then the command line's, then what makes the arm.
        common = with_words([*study.overrides, *fixed], tuned)
        merged = with_words(common, own)
        control = [f"control={quoted(arm)}"] if arm in study.controls else []
        typed = (*merged, f"seed={seed}", *control, *_named(name, arm, own))
        specs.append(RunSpec(typed, role, setting, common))
    return specs


def with_words(words: Sequence[str], later: Sequence[str]) -> tuple[str, ...]:
    """Return overrides of which each key has one: the one that was typed last."""
    return tuple({key_of(text): text for text in [*words, *later]}.values())


def report_cells(study: Study, seeds: Sequence[int], arms: Iterable[str]) -> list[Cell]:
    """Return these arms and seeds, at the declared setting, in the study's order."""
    kept = set(arms)
    return [(arm, seed, REPORT, {}) for arm in study.arms if arm in kept for seed in seeds]


def trial_cells(study: Study, values: Sequence[float]) -> list[Cell]:
    """Return the trials of the tuned key at ``values``: every arm, every tuning seed."""
    assert study.tune is not None
    key, seeds = study.tune.key, study.tune.seeds
    points = itertools.product(study.arms, values, seeds)
    return [(arm, seed, TUNE, {key: value}) for arm, value, seed in points]


def tuned_cells(study: Study, best: Mapping[str, float]) -> list[Cell]:
    """Return the reporting runs at the settings that tuning chose.

    Each arm runs at the baseline's best, to be compared at equal settings, and at its own.
    """
    assert study.tune is not None
    settings = [(REPORT, arm, best[study.baseline_of(arm)]) for arm in study.arms]
    settings += [(TUNED, arm, best[arm]) for arm in study.arms]
    points = itertools.product(settings, study.seeds)
    return [(arm, seed, role, {study.tune.key: value}) for (role, arm, value), seed in points]


def seeds_of(study: Study, overrides: Sequence[Override]) -> list[int]:
    """Return the reporting seeds: those typed, or those declared."""
    typed = [o for o in overrides if o.get_key_element() == "seed"]
    if not typed:
        return study.seeds
    if study.looks:
        raise InputError(
            f"{typed[-1].input_line} does not go with the rule of study {study.name!r}, which adds "
            f"seeds after looks at {study.looks}; leave it out, or change seeds: in the study."
        )
    texts = [text.removeprefix("seed=") for text in _values(typed[-1])]
    if not all(text.isdecimal() for text in texts):
        raise InputError(f"seed={','.join(texts)} must be whole numbers; type seed=0,1,2.")
    return [int(text) for text in texts]


def _fixed(overrides: Sequence[Override]) -> list[str]:
    """Return the command line's overrides of a study; only seeds may have several values."""
    _check_one_value(overrides)
    if swept := swept_keys(overrides):
        raise InputError(
            f"{swept[0]} is given several values beside a study, whose arms are declared; add "
            "arms to the study's file, or leave study=... out."
        )
    texts = [text for override in overrides for text in _values(override)]
    return [text for text in texts if key_of(text) != "seed" and not _of_the_sweep(key_of(text))]


def _check_one_value(overrides: Sequence[Override]) -> None:
    """Refuse several values of a key that holds for a whole sweep."""
    for override in overrides:
        key = override.get_key_element()
        if override.is_sweep_override() and _of_the_sweep(key):
            values = _values(override)
            instead = f"type a command for each, with {' and '.join(values[:2])}"
            if (name := key.lstrip("+")).startswith("study."):
                listed = ",".join(text.partition("=")[2] for text in values)
                instead = f"type {name}=[{listed}] for a list"
            raise InputError(
                f"{str(override.input_line).lstrip('+')} is several values of a key that holds "
                f"for all runs of a sweep; {instead}."
            )


def _values(override: Override) -> list[str]:
    """Return an override as it stands, or each of the overrides that a list of values means."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise InputError(f"{override.input_line} is not a list of values; type {key}=a,b,c.")
    texts = override.sweep_string_iterator()
    if override.is_range_sweep():
        # Sums of steps: 0.009 may have come out as 0.009000000000000001.
        texts = (repr(float(f"{float(t):.12g}")) if "." in t else t for t in texts)
    return [f"{key}={value}" for value in texts]


def _of_the_sweep(key: str) -> bool:
    """Return whether a key says which sweep, and so is not passed on to its runs."""
    key = key.lstrip("+~")
    return key == "name" or (use_of(key) is Use.COMMAND and not key.startswith("hydra"))


def key_of(override: str) -> str:
    """Return the key of an override, as it is typed."""
    return override.split("=", 1)[0]


def _named(name: str, arm: str, own: Sequence[str]) -> list[str]:
    listed = ",".join(map(quoted, own))
    return [f"name={quoted(name)}", f"arm={quoted(arm)}", f"arm_overrides=[{listed}]"]
