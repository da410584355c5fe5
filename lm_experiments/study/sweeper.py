"""The sweeper: a multirun is composed, checked and planned whole before its first run starts."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from lm_experiments.report import show_report, write_report
from lm_experiments.training.typed import ConfigError

from .identity import arm_label, sweep_name
from .job import arm_overrides
from .plan import PlannedRun, checked, plain, planned, run_status
from .record import record_sweep
from .summary import end_lines, offline_lines, plan_lines


class PlanningSweeper(Sweeper):
    """Every combination of the values given, each checked before any is trained.

    Runs that are done are not started again. One that fails does not stop the others; the end
    says which, and why.
    """

    __module__ = "hydra_plugins.lm_experiments"

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra gives, and make the launcher the configuration asks for."""
        self.base = config
        self.loader = hydra_context.config_loader
        self.start = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Plan the runs the arguments describe, train those that are missing, and report.

        Raises:
            SystemExit: where a run failed.
        """
        parser = OverridesParser.create(config_loader=self.loader)
        overrides = parser.parse_overrides(arguments)
        jobs = self._jobs(overrides)
        runs, missing = _distinct(jobs, self._plan(jobs))
        folder = runs[0].directory.parent
        record_sweep(folder, runs, _axes(overrides))
        print("\n".join(plan_lines(runs, repeated=len(jobs) - len(runs))), flush=True)
        returned = self.start.launch(missing, initial_job_idx=0) if missing else []
        self._report(runs, folder)
        return returned

    def _jobs(self, overrides: Sequence[Override]) -> list[list[str]]:
        """Return each run's overrides, its sweep's name and its arm among them."""
        swept = [o.get_key_element() for o in overrides if o.is_sweep_override()]
        combinations = [list(job) for job in itertools.product(*map(_values, overrides))]
        fixed = [text for text in combinations[0] if _key(text) not in swept]
        name = self.base.name or sweep_name(swept, arm_overrides(fixed))
        jobs = []
        for job in combinations:
            arm = [text for text in arm_overrides(job) if _key(text) in swept]
            jobs.append([*job, f"name={_quoted(name)}", *_arm(arm, self.base.arm)])
        return jobs

    def _plan(self, jobs: Sequence[Sequence[str]]) -> list[PlannedRun]:
        """Compose and check all runs; only then read the corpora and find the runs' places."""
        composed = [self.loader.load_sweep_config(self.base, list(job)) for job in jobs]
        return [planned(config) for config in [checked(plain(c)) for c in composed]]

    def _report(self, runs: Sequence[PlannedRun], folder: Path) -> None:
        print("\n".join(end_lines(runs)))
        show_report(write_report(folder))
        print("\n".join(offline_lines(folder)))
        if any(run_status(run.directory) != "done" for run in runs):
            raise SystemExit(1)


def register() -> None:
    """Make the sweeper known to Hydra, under the name the primary config asks for.

    Hydra takes plugins from the package ``hydra_plugins`` alone, so the class is found there too.
    """
    package, _, name = PlanningSweeper.__module__.partition(".")
    alias = ModuleType(PlanningSweeper.__module__)
    setattr(alias, PlanningSweeper.__name__, PlanningSweeper)
    parent = sys.modules.setdefault(package, _plugins_package(package))
    setattr(parent, name, alias)
    sys.modules[alias.__name__] = alias
    Plugins.instance().register(PlanningSweeper)
    target = f"{alias.__name__}.{PlanningSweeper.__name__}"
    ConfigStore.instance().store(
        group="hydra/sweeper",
        name="lm_experiments",
        node={"_target_": target},
    )


def _plugins_package(name: str) -> ModuleType:
    """Return the package of installed plugins, or an empty one where none is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = ModuleType(name)
        package.__path__ = []
        return package


def _distinct(
    jobs: Sequence[list[str]], runs: Sequence[PlannedRun]
) -> tuple[list[PlannedRun], list[list[str]]]:
    """Return each run once, and the overrides of those that are not done.

    Overrides that do not change the result lead to one and the same run.
    """
    found: dict[str, tuple[list[str], PlannedRun]] = {}
    for job, run in zip(jobs, runs, strict=True):
        found.setdefault(run.config_hash, (job, run))
    missing = [job for job, run in found.values() if run.status != "done"]
    return [run for _, run in found.values()], missing


def _axes(overrides: Sequence[Override]) -> list[str]:
    """Return the keys that are swept, seeds aside, in the order they were typed."""
    keys = [o.get_key_element() for o in overrides if o.is_sweep_override()]
    return [key for key in keys if key != "seed"]


def _values(override: Override) -> list[str]:
    """Return an override as it stands, or each of the overrides that a list of values means."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise ConfigError(f"{override.input_line} is not a list of values; type {key}=a,b,c.")
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _key(override: str) -> str:
    return override.split("=", 1)[0]


def _arm(overrides: Sequence[str], label: str | None) -> list[str]:
    listed = ",".join(map(_quoted, overrides))
    return [f"arm={_quoted(label or arm_label(overrides))}", f"arm_overrides=[{listed}]"]


def _quoted(text: str) -> str:
    """Return the text as Hydra's command line reads it back."""
    return json.dumps(text, ensure_ascii=False)
