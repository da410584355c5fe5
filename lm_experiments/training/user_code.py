"""The user's own components: Python files named by ``code_paths``, and installed packages."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from lm_experiments.errors import InputError

ENTRY_POINTS = "lm_experiments.components"
CODE_PATHS = "code_paths="


def take_code_paths(words: Sequence[str]) -> list[str]:
    """Run the files that ``code_paths=...`` names, and return the other words.

    Raises:
        InputError: if the word cannot be read, or a file is missing.
    """
    given = [word for word in words if word.lstrip("+").startswith(CODE_PATHS)]
    if given:
        load_code(named_files(given[-1]))
    return [word for word in words if word not in given]


def named_files(word: str) -> list[str]:
    """Return the files that a word ``code_paths=...`` names: one file, or a list in brackets.

    Raises:
        InputError: if it is neither.
    """
    try:
        value = yaml.safe_load(word.partition("=")[2])
    except yaml.YAMLError:
        value = None
    paths = value if isinstance(value, list) else [value]
    if not all(isinstance(path, str) for path in paths):
        raise InputError(f"{word} names no files; type {CODE_PATHS}[my_block.py].")
    return [str(path) for path in paths]


def load_code(paths: Iterable[str]) -> None:
    """Run the user's Python files, which register components; a file is run once.

    Raises:
        InputError: if a file is missing, or raises.
    """
    for path in paths:
        file = Path(path).expanduser().resolve()
        if not file.is_file():
            raise InputError(f"code_paths names {path}, which is not a file.")
        digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
        module_name = f"lm_experiments_code_{file.stem}_{digest}"
        if module_name not in sys.modules:
            _run(file, module_name, path)


def _run(file: Path, module_name: str, path: str) -> None:
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        text = str(error) or "no reason given"
        raise InputError(
            f"code_paths: {path} does not load: {type(error).__name__}: {text}"
        ) from error


def load_installed() -> None:
    """Import the installed packages that offer components through an entry point."""
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        entry.load()
