"""All keys of the configuration, as they are typed, and what each is for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lm_experiments.fields import Field, Use, fields_of
from lm_experiments.registry import GROUPS, component, names
from lm_experiments.rundir.ladder import Ladder
from lm_experiments.rundir.study import Study, Tuning
from lm_experiments.study.command_config import CommandConfig
from lm_experiments.training.config import RunConfig

# Shorter names for two keys of the model.
SHORT = {"match": "model.match", "match_tolerance": "model.match_tolerance"}


@dataclass(frozen=True)
class Key:
    """One key of the configuration.

    Attributes:
        name: dotted, as typed: ``trainer.max_steps``.
        choice: the components that have the option, as typed (``norm=rmsnorm``); empty for
            other keys.
    """

    name: str
    field: Field
    use: Use
    choice: str = ""


def all_keys() -> list[Key]:
    """Return every key that can be typed, the options of all components included."""
    keys = [key for cls in (RunConfig, CommandConfig) for key in _keys(cls, "", None)]
    return [key for key in keys if key.use is not Use.DERIVED]


def study_keys() -> list[Key]:
    """Return every key of a study's file, as it is typed on a command line."""
    sections = {"study.": Study, "study.tune.": Tuning, "study.ladder.": Ladder}
    keys = [key for prefix, cls in sections.items() for key in _keys(cls, prefix, None)]
    return [replace(key, use=Use.COMMAND) for key in keys if key.use is not Use.DERIVED]


def use_of(key: str) -> Use:
    """Return what a dotted key, or a group, is for; one that is not known determines the result."""
    if re.split(r"[./]", key)[0] == "hydra":
        return Use.COMMAND
    found = _field(key)
    return Use.RESULT if found is None else found.use


def is_hashed(key: str, value: Any) -> bool:
    """Whether the value of a dotted key is part of the identity of a run."""
    found = _field(key)
    if found is not None and found.use is Use.LATER:
        return bool(value != found.default)
    return use_of(key).in_hash


def _field(key: str) -> Field | None:
    """Return the field of a dotted key, or the first above it that says what it is for."""
    found: Field | None = None
    classes: list[Any] = [RunConfig, CommandConfig]
    for part in re.split(r"[./]", SHORT.get(key, key)):
        found = next((f for cls in classes for f in fields_of(cls) if f.name == part), None)
        if found is None or found.use is not Use.RESULT:
            return found
        if part in GROUPS:
            classes = [component(part, name).options for name in names(part)]
        else:
            classes = [found.type] if dataclasses.is_dataclass(found.type) else []
    return found


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested plain values by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _keys(cls: Any, prefix: str, inherited: Use | None, choice: str = "") -> Iterator[Key]:
    for field in fields_of(cls):
        name = f"{prefix}{field.name}"
        use = inherited or field.use
        below = None if use is Use.RESULT else use
        if field.name in GROUPS:
            # Components that share a class of options share its keys.
            users: dict[Any, list[str]] = {}
            for chosen in names(field.name):
                users.setdefault(component(field.name, chosen).options, []).append(chosen)
            for options, sharing in users.items():
                yield from _keys(options, f"{name}.", below, f"{field.name}={','.join(sharing)}")
        elif dataclasses.is_dataclass(field.type):
            yield from _keys(field.type, f"{name}.", below)
        else:
            yield Key(name, field, use, choice)
