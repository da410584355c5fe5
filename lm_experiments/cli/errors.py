"""Hydra's and OmegaConf's errors as one sentence that says what to type."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf

from lm_experiments.conf_dir import conf_dir
from lm_experiments.errors import EXTRAS, did_you_mean, not_installed, one_sentence
from lm_experiments.invocation import as_typed
from lm_experiments.registry import AXES, GROUPS


def explain(error: Exception, arguments: Sequence[str]) -> str:
    """Return one sentence for an error raised while ``arguments`` were composed or checked."""
    if isinstance(error, MissingConfigException):
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        if group == "hydra/launcher" and name in EXTRAS:
            return not_installed(name)
        known = error.options or []
        hint = did_you_mean(name, known, f"{group}=")
        return f"{group}={name} is not known; {group} can be {', '.join(known)}.{hint}"
    text = str(error)
    for pattern, sentence in _SENTENCES.items():
        if found := re.search(pattern, text):
            return sentence(found, arguments)
    return one_sentence(error)


def refuse(error: Exception, arguments: Sequence[str]) -> NoReturn:
    """Say what is wrong in one sentence, and end the program with exit code 2."""
    print(f"error: {as_typed(explain(error, arguments))}", file=sys.stderr)
    raise SystemExit(2)


def _ambiguous(found: re.Match[str], arguments: Sequence[str]) -> str:
    command = " ".join(["python scripts/train.py -m", *arguments])
    return f"{found[1]} holds several values; add -m to train one run for each: {command}"


def _unknown_key(found: re.Match[str], arguments: Sequence[str]) -> str:
    key = found[1].lstrip("+~")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        groups = compose("train", return_hydra_config=True).hydra.runtime.choices
        choices = [text for text in arguments if text.split("=")[0] in groups and "," not in text]
        try:
            config = compose("train", choices)
        except HydraException:
            # A choice from a folder of the user's own, which is not searched here.
            config = compose("train")
    if option := re.fullmatch(rf"(?:model\.)?({'|'.join(GROUPS)})\.(\w+)", key):
        section = f"model.{option[1]}" if option[1] in AXES else option[1]
        chosen = OmegaConf.select(config, section)
        known = ", ".join(f"{section}.{name}" for name in chosen if name != "name") or "none"
        return f"{option[1]}={chosen.name} has no option {option[2]}; it has {known}."
    near = difflib.get_close_matches(key, [*groups, *_dotted(config)], n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else "see python scripts/train.py --help."
    return f"{key} is not a key; {hint}"


def _dotted(config: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in map(str, config):
        yield f"{prefix}{key}"
        if isinstance(config._get_node(key), DictConfig):
            yield from _dotted(config[key], f"{prefix}{key}.")


def _unreadable(found: re.Match[str], arguments: Sequence[str]) -> str:
    return (
        f"the command line cannot be read ({' '.join(arguments)}); write key=value without spaces "
        "around = or commas, as in placement=pre,post, and quotes around values that hold spaces."
    )


_SENTENCES: dict[str, Callable[[re.Match[str], Sequence[str]], str]] = {
    r"Ambiguous value for argument '([^']*)'": _ambiguous,
    r"Could not override '([^']*)'": _unknown_key,
    r"(mismatched|extraneous|no viable alternative|token recognition error)": _unreadable,
    r"Key '[^']*' is not in struct\s+full_key: (\S+)": _unknown_key,
}
