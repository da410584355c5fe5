"""Hydra's plugin for ``-m``: it hands the command line to the planner."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from lm_experiments.study.composer import Composer
from lm_experiments.study.planner import Planner


class PlanningSweeper(Sweeper):
    """Trains a declared study, or every combination of the values given.

    Hydra composes configurations; its launchers are chosen and configured, but never called.
    """

    __module__ = "hydra_plugins.lm_experiments"

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take the configuration that all runs share, and what composes that of each run."""
        self.base = config
        self.loader = hydra_context.config_loader

    def sweep(self, arguments: list[str]) -> Any:
        """Plan, train and report the runs described; SystemExit where one failed."""
        parser = OverridesParser.create(config_loader=self.loader)
        Planner(self.base, Composer(self.base, self.loader)).run(parser.parse_overrides(arguments))


def register() -> None:
    """Make the sweeper known to Hydra, under the name the primary config asks for.

    Hydra takes plugins from the package ``hydra_plugins`` alone, so the class is found there too.
    """
    package, _, name = PlanningSweeper.__module__.partition(".")
    try:
        parent = importlib.import_module(package)
    except ImportError:
        # No plugin of Hydra's is installed.
        parent = sys.modules[package] = ModuleType(package)
        parent.__path__ = []
    alias = ModuleType(PlanningSweeper.__module__)
    setattr(alias, PlanningSweeper.__name__, PlanningSweeper)
    setattr(parent, name, alias)
    sys.modules[alias.__name__] = alias
    Plugins.instance().register(PlanningSweeper)
    node = {"_target_": f"{alias.__name__}.{PlanningSweeper.__name__}"}
    ConfigStore.instance().store(group="hydra/sweeper", name="lm_experiments", node=node)
