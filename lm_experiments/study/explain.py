"""Hydra's and OmegaConf's errors as one sentence that says what to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from yaml import MarkedYAMLError

from lm_experiments.conf_dir import conf_dir
from lm_experiments.errors import EXTRAS, did_you_mean, not_installed, one_sentence
from lm_experiments.registry import AXES, GROUPS
from lm_experiments.study.choices import groups
from lm_experiments.study.hints import meant, suggestions
from lm_experiments.study.words import is_readable, with_quotes

Compose = Callable[[list[str]], DictConfig]


def compose_command(words: list[str]) -> DictConfig:
    """Compose the configuration of some words of a command line, outside of Hydra's own run."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("train", words)


def explain(error: Exception, words: Sequence[str], compose: Compose = compose_command) -> str:
    """Return one sentence for an error raised while ``words`` were composed or checked.

    Args:
        error: what was raised.
        words: the overrides, as typed or declared.
        compose: composes the configuration of some of the words.
    """
    if isinstance(error, MissingConfigException):
        return _unknown_choice(error)
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        where = f"{error.problem_mark.name}, line {error.problem_mark.line + 1}"
        return f"{where}: {error.problem or error.context}."
    text = str(error)
    if found := re.search(r"Ambiguous value for argument '([^']*)'", text):
        command = " ".join(["python scripts/train.py -m", *words])
        return f"{found[1]} holds several values; add -m to train one run for each: {command}"
    if re.search(
        r"mismatched|extraneous|no viable alternative|token recognition|LexerNoViable", text
    ):
        return _unreadable(words)
    struct = r"Could not override '([^']*)'|Key '[^']*' is not in struct\s+full_key: (\S+)"
    if found := re.search(struct, text):
        return _unknown_key((found[1] or found[2]).lstrip("+~"), words, compose)
    return one_sentence(error)


def _unknown_choice(error: MissingConfigException) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    if (choice := f"{group}={name}") in EXTRAS:
        return not_installed(choice)
    known = error.options or []
    hint = did_you_mean(name, known, f"{group}=")
    if group == "hydra/launcher":
        hint = " A sweep trains several runs at once without one."
    elif not hint and (others := [text for text in suggestions("", name) if "=" in text]):
        hint = f" Did you mean {others[0]}?"
    return f"{group}={name} is not known; {group} can be {', '.join(known)}.{hint}"


def _unknown_key(key: str, words: Sequence[str], compose: Compose) -> str:
    if option := re.fullmatch(rf"(?:model\.)?({'|'.join(GROUPS)})\.(\w+)", key):
        chosen = OmegaConf.select(_of_choices(words, compose), section := _section(option[1]))
        known = ", ".join(f"{section}.{name}" for name in chosen if name != "name") or "none"
        return f"{option[1]}={chosen.name} has no option {option[2]}; it has {known}."
    pairs = [text.lstrip("+~").partition("=") for text in words]
    value = next((value for typed, _, value in pairs if typed == key), "")
    return f"{key} is not a key; {meant(key, value)}"


def _section(group: str) -> str:
    return f"model.{group}" if group in AXES else group


def _of_choices(words: Sequence[str], compose: Compose) -> DictConfig:
    """Return the configuration of the choices among the words, without single values."""
    kept = [text for text in words if text.split("=")[0] in (*groups(), "hydra.searchpath")]
    try:
        return compose([text for text in kept if "," not in text or text.startswith("hydra")])
    except HydraException:
        # A choice that cannot be found either.
        return compose([])


def _unreadable(words: Sequence[str]) -> str:
    for text in words:
        if not is_readable(text) and (typed := with_quotes(text)):
            return f"{text} cannot be read without quotes; type {shlex.quote(typed)}"
    return (
        f"the command line cannot be read ({' '.join(words)}); write key=value without spaces "
        "around = or commas, as in placement=pre,post, and quotes around values that hold spaces."
    )
