"""What each key and each choice means, in the words of the code that owns it."""

from __future__ import annotations

import copy
import itertools
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from lm_experiments.cli.components import typed
from lm_experiments.conf_dir import conf_dir
from lm_experiments.fields import Use, documentation_of, fields_of, first_sentence
from lm_experiments.launch.launcher import LAUNCHERS
from lm_experiments.registry import MISSING, component
from lm_experiments.study.choices import choices, groups
from lm_experiments.study.command_config import command_config
from lm_experiments.study.explain import compose_command
from lm_experiments.study.keys import Key, all_keys, flat, study_keys
from lm_experiments.training.config import RunConfig, run_config

# Where what sweeps run on is chosen; the group is Hydra's own.
LAUNCHER = "hydra/launcher"
_KINDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
# Values that a key's own check refuses, for its sentence on what the key can be.
_REFUSED = {int: (-1, 0), float: (-1, 0, 2), str: ("?",), bool: ()}
_LISTED = ("it can be", "type one of", "use one of")
_RULE = re.compile(
    rf"({'|'.join(_LISTED)}|must be|must lie) (.+?)(?:, or null|, and leave|; |, for ex|\.?$)"
)


@dataclass(frozen=True)
class Entry:
    """One key of the configuration, as it is explained to a user.

    Attributes:
        default: its default value, as it is typed.
        allowed: the kind of value, and its range or choices in the words of the key's own check.
    """

    key: Key
    default: str
    allowed: str

    @property
    def assigned(self) -> str:
        """The key at its default, as it is typed."""
        return f"{self.key.name}={self.default}"

    @property
    def words(self) -> str:
        """What the key means, one sentence or more."""
        return sentence(self.key.field.documentation)

    @property
    def effect(self) -> str:
        """What another value does, where it does not determine the result."""
        use = self.key.use
        return "" if use is Use.RESULT else sentence(documentation_of(Use)[use.name])

    @property
    def section(self) -> str:
        """What stands before the key's last word, with the choices that have it."""
        before = self.key.name.rpartition(".")[0]
        return f"{before}, with {self.key.choice}" if self.key.choice else before


def entries() -> list[Entry]:
    """Return every key with its default, section by section; those without a section come first."""
    values = _defaults()
    keys = sorted(all_keys(), key=lambda key: "." in key.name)
    found = flat(values)
    return [
        *(_entry(key, found.get(key.name), values) for key in keys),
        *(Entry(key, typed(key.field.default), kind(key.field.type)) for key in study_keys()),
    ]


def by_section(listed: list[Entry]) -> list[tuple[str, list[Entry]]]:
    """Return each section's title with its keys, in the order of its first key."""
    sections: dict[str, list[Entry]] = {}
    for entry in listed:
        sections.setdefault(entry.section, []).append(entry)
    return list(sections.items())


def all_groups() -> list[str]:
    """Return every group of which one is chosen by name."""
    return [*groups(), LAUNCHER]


def choice_words(group: str) -> dict[str, str]:
    """Return what each choice of a group is, in one sentence."""
    if group == LAUNCHER:
        return {name: sentence(words) for name, words in LAUNCHERS.items()}
    return {name: sentence(_words_of(group, name)) for name in choices(group)}


def kind(hint: Any) -> str:
    """Return what a value of a type is called."""
    if _is_union(hint):
        return ", or ".join(kind(part) for part in typing.get_args(hint))
    if hint is type(None):
        return "null"
    if typing.get_origin(hint) is list:
        return "list, [a,b]"
    return _KINDS.get(hint, "section of keys")


def sentence(text: str) -> str:
    """Return a text as a sentence, with a capital where it begins with a word, and a full stop."""
    text = re.sub(r"`+", "`", text).rstrip(".")
    text = re.sub(r"^(?:a|[a-z]{2,})(?=[\s,;:'-])", lambda word: word[0].capitalize(), text)
    return f"{text}."


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _entry(key: Key, composed: Any, values: dict[str, Any]) -> Entry:
    default = key.field.default if key.choice else composed
    return Entry(key, typed(default), _allowed(key, values))


def _defaults() -> dict[str, Any]:
    """Return the configuration of a command without words, as nested plain values."""
    values: Any = OmegaConf.to_container(compose_command([]), resolve=True)
    return dict(values)


def _words_of(group: str, name: str) -> str:
    """Return what a choice is: the summary of its class, or the first sentence of its file."""
    path = conf_dir() / group / f"{name}.yaml"
    if not path.is_file():
        return component(group, name).summary
    lines = path.read_text(encoding="utf-8").splitlines()
    lines = lines[1:] if lines[0].startswith("# @package") else lines
    comment = itertools.takewhile(lambda line: line.startswith("# "), lines)
    return first_sentence(" ".join(line[2:] for line in comment))


def _allowed(key: Key, values: Mapping[str, Any]) -> str:
    """Return the kind of value a key takes, with what its own check says of bad ones."""
    parts = typing.get_args(key.field.type) if _is_union(key.field.type) else (key.field.type,)
    return ", or ".join(_allowed_of(part, key, values) for part in parts)


def _allowed_of(hint: Any, key: Key, values: Mapping[str, Any]) -> str:
    for value in _REFUSED.get(hint, ()):
        said = _refusal(key, value, values)
        if said.startswith(f"{key.name}=") and (rule := _RULE.search(said)):
            return rule[2] if rule[1] in _LISTED else f"{kind(hint)}, {rule[2]}"
    return kind(hint)


def _refusal(key: Key, value: Any, values: Mapping[str, Any]) -> str:
    """Return what is said where a key has a value; empty where it may have it."""
    changed = copy.deepcopy(dict(values))
    changed["arm"] = changed["arm"] or "baseline"
    section = changed
    *path, last = key.name.split(".")
    for name in path[:-1] if key.choice else path:
        section = section[name]
    if key.choice:
        group, _, sharing = key.choice.partition("=")
        options = component(group, sharing.split(",")[0]).defaults()
        section[group] = {name: "1" if own == MISSING else own for name, own in options.items()}
        section = section[group]
    section[last] = value
    own = {field.name for field in fields_of(RunConfig)}
    try:
        command_config(changed)
        run_config({name: part for name, part in changed.items() if name in own})
    except ValueError as error:
        return str(error)
    return ""
