"""Resolved configurations as text: the default run whole, every choice by what it changes.

``python tests/conf/golden_configurations.py`` writes the files in ``tests/conf/golden`` anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from lm_experiments.conf_dir import conf_dir
from lm_experiments.fields import Use
from lm_experiments.rundir.study import read_study
from lm_experiments.study import sweeper
from lm_experiments.study.choices import choices, offer_choices
from lm_experiments.study.composer import Composer
from lm_experiments.study.keys import flat, use_of
from lm_experiments.study.plan import checked, plain
from lm_experiments.training.config import RunConfig, plain_values

GOLDEN = Path(__file__).parent / "golden"
COMMAND = "python tests/conf/golden_configurations.py"
# What has to be given with a choice, since there is no default for it.
NEEDED = {
    "data=text": ("data.path=/here",),
    "data=hf": ("data.path=/here",),
    "data=tokens": ("data.path=/here", "tokenizer.vocab_size=50257"),
    "tokenizer=file": ("tokenizer.path=/here",),
    "tokenizer=gpt2": ("tokenizer.path=/here",),
    "tokenizer=symbols": ("data=copy",),
    "tokenizer=none": ("data=tokens", "data.path=/here", "tokenizer.vocab_size=50257"),
}
# A golden file for each; the choices of the architecture's axes are compared as parts of arch.
COMPARED = (
    "default",
    "arch",
    "size",
    "data",
    "trainer",
    "tokenizer",
    "optimizer",
    "schedule",
    "study",
)


@cache
def composed(*words: str) -> RunConfig:
    """Return the checked configuration of a command line."""
    return checked(plain(_composer()(list(words))))


@cache
def _composer() -> Composer:
    """Composes as the runs of a sweep are composed, each set of choices once."""
    loader = GlobalHydra.instance().config_loader()
    return Composer(loader.load_configuration("train", [], RunMode.MULTIRUN), loader)


def golden(group: str) -> dict[str, Any]:
    """Return the content of a golden file: ``default``, a group, or ``study``."""
    _offer()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        default = _values(composed())
        if group == "default":
            return default
        if group == "study":
            return {name: _study(name, default) for name in choices("study")}
        return {name: _changes(_words(group, name), default) for name in choices(group)}


def arms(name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the label of each arm of a study, and its overrides."""
    values = OmegaConf.to_container(compose("train", [f"study={name}"]).study, resolve=True)
    study = read_study(values)  # type: ignore[arg-type]
    for label, own in study.arms.items():
        yield label, [*study.overrides, *own]


def _offer() -> None:
    GlobalHydra.instance().clear()
    offer_choices()
    sweeper.register()


def _words(group: str, name: str) -> list[str]:
    return [f"{group}={name}", *NEEDED.get(f"{group}={name}", ())]


def _study(name: str, default: dict[str, Any]) -> dict[str, Any]:
    return {label: _changes(words, default) for label, words in arms(name)}


def _changes(words: Iterable[str], default: dict[str, Any]) -> dict[str, Any]:
    values = _values(composed(*words))
    return {key: value for key, value in values.items() if value != default.get(key)}


def _values(config: RunConfig) -> dict[str, Any]:
    """Return what the configuration holds, with the feed-forward width that is built."""
    skipped = ("cache_dir", "model.vocab_size", "model.end_of_text")
    values = {
        key: value
        for key, value in flat(plain_values(config)).items()
        if use_of(key) is not Use.NAME and key not in skipped
    }
    return values | {"model.ffn_width": config.model.width}


def as_text(values: dict[str, Any]) -> str:
    """Return the content of a golden file as YAML."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10_000)


if __name__ == "__main__":
    for group in COMPARED:
        path = GOLDEN / f"{group}.yaml"
        path.write_text(as_text(golden(group)), encoding="utf-8")
        print(path)
