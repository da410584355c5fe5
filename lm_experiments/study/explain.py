"""Hydra's and OmegaConf's errors as one sentence that says what to type."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import MissingConfigException
from omegaconf import DictConfig

import lm_experiments
from lm_experiments.model import AXES
from lm_experiments.model.registry import UnknownComponentError, component

CONF = Path(lm_experiments.__file__).parents[1] / "conf"


def explain(error: Exception, arguments: Sequence[str]) -> str:
    """Return one sentence for an error of the command line.

    Args:
        error: what was raised while the configuration was composed or checked.
        arguments: the command line.
    """
    if isinstance(error, MissingConfigException):
        return _missing_choice(error)
    text = str(error)
    for pattern, sentence in _SENTENCES.items():
        if found := re.search(pattern, text):
            return sentence(found, arguments)
    return " ".join(text.split("\n\n")[0].split())


def refuse(error: Exception, arguments: Sequence[str]) -> NoReturn:
    """Say what is wrong in one sentence, and end the program with exit code 2."""
    print(f"error: {explain(error, arguments)}", file=sys.stderr)
    raise SystemExit(2)


def _missing_choice(error: MissingConfigException) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    if group in AXES:
        try:
            component(group, name)
        except UnknownComponentError as unknown:
            return str(unknown)
    known = ", ".join(error.options or [])
    return f"{group}={name} is not known; {group} can be {known}."


def _ambiguous(found: re.Match[str], arguments: Sequence[str]) -> str:
    command = " ".join(["python scripts/train.py -m", *arguments])
    return f"{found[1]} holds several values; add -m to train one run for each: {command}"


def _unknown_key(found: re.Match[str], arguments: Sequence[str]) -> str:
    key = found[1].lstrip("+~")
    known = list(_known_keys())
    if key in known:
        return f"{key} is not an option of the component chosen; see scripts/components.py."
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else "see python scripts/train.py --help."
    return f"{key} is not a key; {hint}"


def _known_keys() -> Iterator[str]:
    """Yield every dotted key of the default configuration, and every group."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", return_hydra_config=True)
    yield from config.hydra.runtime.choices
    del config.hydra
    yield from _dotted(config)


def _dotted(config: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in map(str, config):
        yield f"{prefix}{key}"
        if isinstance(config._get_node(key), DictConfig):
            yield from _dotted(config[key], f"{prefix}{key}.")


_SENTENCES: dict[str, Callable[[re.Match[str], Sequence[str]], str]] = {
    r"Ambiguous value for argument '([^']*)'": _ambiguous,
    r"Could not override '([^']*)'": _unknown_key,
    r"Key '[^']*' is not in struct\s+full_key: (\S+)": _unknown_key,
}
