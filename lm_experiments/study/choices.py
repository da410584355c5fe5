"""Components as Hydra choices: what is registered can be chosen, and nothing else is edited."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from hydra.core.config_store import ConfigStore

from lm_experiments.model import AXES
from lm_experiments.model.registry import component, names
from lm_experiments.training.typed import ConfigError

ENTRY_POINTS = "lm_experiments.components"


def offer_components() -> None:
    """Make every registered component a choice of its axis's group, its options under `model`."""
    store = ConfigStore.instance()
    for axis in AXES:
        for name in names(axis):
            node = component(axis, name).defaults()
            store.store(name=name, node=node, group=axis, package=f"model.{axis}")


def load_code(paths: Iterable[str]) -> None:
    """Run the user's Python files, which register components; a file is run once.

    Raises:
        ConfigError: where a file is missing.
    """
    for path in paths:
        file = Path(path).expanduser().resolve()
        if not file.is_file():
            raise ConfigError(f"code_paths names {path}, which is not a file.")
        module_name = f"lm_experiments_code_{file.stem}"
        if module_name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(module_name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)


def load_installed() -> None:
    """Import the installed packages that offer components through an entry point."""
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        entry.load()
