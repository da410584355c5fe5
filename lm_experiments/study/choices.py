"""What Hydra can choose beside the files of ``conf``: defaults and registered components."""

from __future__ import annotations

import dataclasses
from typing import Any

from hydra.core.config_store import ConfigStore

from lm_experiments.conf_dir import conf_dir
from lm_experiments.fields import Use, fields_of
from lm_experiments.registry import GROUPS, component, names
from lm_experiments.study.command_config import CommandConfig
from lm_experiments.study.keys import SHORT
from lm_experiments.training.config import RunConfig


def offer_choices() -> None:
    """Give Hydra every key at its default, and every registered component as a choice."""
    store = ConfigStore.instance()
    store.store(name="lm_experiments", group="hydra/help", node={})
    store.store(name="base", node=base_values())
    for group in GROUPS:
        for name in names(group):
            found = component(group, name)
            store.store(name=name, node=found.defaults(), group=group, package=found.section)


def groups() -> list[str]:
    """Return everything that is chosen by name: the folders of ``conf``, and the components'."""
    folders = [path.name for path in conf_dir().iterdir() if path.is_dir()]
    return sorted({*folders, *GROUPS} - {"hydra"})


def choices(group: str) -> list[str]:
    """Return the choices of a group, or nothing for another word."""
    files = [path.stem for path in (conf_dir() / group).glob("*.yaml")]
    return sorted({*files, *(names(group) if group in GROUPS else [])})


def base_values() -> dict[str, Any]:
    """Return every key that is not an option of a component, at its default."""
    # Left to the command: the label follows from what was typed.
    values = {**_defaults(RunConfig), **_defaults(CommandConfig), "arm": None}
    for short, key in SHORT.items():
        section, _, name = key.partition(".")
        values[short] = values[section][name]
        values[section][name] = f"${{{short}}}"
    return values


def _defaults(cls: Any) -> dict[str, Any]:
    values = {}
    for field in fields_of(cls):
        if field.use is Use.DERIVED or field.name in GROUPS:
            continue
        nested = dataclasses.is_dataclass(field.type)
        values[field.name] = _defaults(field.type) if nested else field.default
    return values
