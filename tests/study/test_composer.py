"""A composed configuration is the one that Hydra gives for the same words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lm_experiments.conf_dir import conf_dir
from lm_experiments.study import sweeper
from lm_experiments.study.choices import choices, groups, offer_choices
from lm_experiments.study.composer import Composer
from lm_experiments.study.keys import all_keys

LISTS = 40
# Beside a choice of each group and a value for each key.
UNUSUAL = [
    "seed=7",
    "arm='a b, c'",
    'arm_overrides=["ffn=relu","optimizer.lr=1e-3"]',
    "trainer.max_steps=${seed}",
    "+optimizer.lr=3",
    "++optimizer.lr=0.5",
    "++model.norm.eps=1e-3",
    "+model.norm.nothing=1",
    "~model.bias",
    "~norm",
    "~optimizer=adamw",
    "arch=null",
    "study={name:a,baseline:b}",
    "norm={eps:1}",
    "model.attention_pattern=[local,global]",
    "data={name:text,path:/here}",
    "model={d_model:64}",
    "+arch=gpt2",
    "+hydra/launcher=basic",
    "hydra/launcher=basic",
    "hydra.verbose=true",
    "seed=1,2",
    "no.such=1",
    "ffn=nothing",
    "norm@model=layernorm",
    "name=1e3",
    "name=",
    "=1",
    "match=${model.d_ff}",
]


@pytest.fixture(scope="module")
def loader() -> Iterator[ConfigLoader]:
    """Hydra's, with every choice that a command has."""
    GlobalHydra.instance().clear()
    offer_choices()
    sweeper.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.fixture(scope="module")
def base(loader: ConfigLoader) -> DictConfig:
    return loader.load_configuration("train", ["ffn=relu"], RunMode.MULTIRUN)


def outcome(compose: Callable[[list[str]], DictConfig], words: Sequence[str]) -> Any:
    """Return all that is read of a configuration, or the error."""
    try:
        config = compose(list(words))
    except Exception as error:
        return type(error), str(error)
    values = OmegaConf.to_container(config, resolve=False)
    assert isinstance(values, dict)
    hydra = values.pop("hydra")
    flags = [OmegaConf.is_struct(config), OmegaConf.is_struct(config.model)]
    return OmegaConf.to_yaml(config.model), values, flags, hydra["launcher"], hydra["runtime"]


def pool() -> list[str]:
    chosen = [f"{group}={name}" for group in groups() for name in choices(group)]
    values = [f"{key.name}={value}" for key in all_keys() for value in ("3", "null", "0.25")]
    return [*chosen, *values]


def test_random_words_give_what_hydra_gives(loader: ConfigLoader, base: DictConfig) -> None:
    composer, drawn, known = Composer(base, loader), random.Random(0), pool()

    def hydra(words: list[str]) -> DictConfig:
        return loader.load_sweep_config(base, words)

    composed = 0
    for _ in range(LISTS):
        words = drawn.sample(known, drawn.randrange(8))
        # Most lists are such as people type; every unusual word makes some.
        words += drawn.sample(UNUSUAL, drawn.choice([0, 0, 0, 1]))
        drawn.shuffle(words)
        expected = outcome(hydra, words)
        assert outcome(composer, words) == expected, words
        composed += len(expected) > 2
    assert composed > LISTS / 4


@pytest.mark.parametrize("word", UNUSUAL)
def test_an_unusual_word_gives_what_hydra_gives(
    word: str, loader: ConfigLoader, base: DictConfig
) -> None:
    words = ["norm=layernorm", word, "model.d_model=48"]
    expected = outcome(lambda words: loader.load_sweep_config(base, words), words)
    assert outcome(Composer(base, loader), words) == expected


def test_each_choice_gives_what_hydra_gives(loader: ConfigLoader, base: DictConfig) -> None:
    composer = Composer(base, loader)
    for group in groups():
        # Values before the choice, which come after it all the same.
        words = ["model.d_ff=96", f"{group}={choices(group)[-1]}", "optimizer.lr=0.25"]
        expected = outcome(lambda words: loader.load_sweep_config(base, words), words)
        assert outcome(composer, words) == expected, words


def test_a_group_of_a_folder_that_is_typed_is_found(
    loader: ConfigLoader, base: DictConfig, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.yaml").write_text("# @package model\nd_model: 48\n")
    words = ["+mine=own", f"hydra.searchpath=[file://{tmp_path}]"]
    expected = outcome(lambda words: loader.load_sweep_config(base, words), words)
    assert expected[1]["model"]["d_model"] == 48
    assert outcome(Composer(base, loader), words) == expected


def test_a_configuration_is_not_changed_by_the_next(loader: ConfigLoader, base: DictConfig) -> None:
    composer = Composer(base, loader)
    first = composer(["model.attention_pattern=[local]", "seed=1"])
    first.seed = 9
    first.model.d_model = 1
    again = composer(["model.attention_pattern=[local]", "seed=1"])
    assert (again.seed, again.model.d_model) == (1, 96)
    assert composer(["seed=2"]).model.attention_pattern != ["local"]
