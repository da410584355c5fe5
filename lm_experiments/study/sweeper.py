"""The sweeper: a multirun is composed, checked and planned whole before its first run starts."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from lm_experiments.errors import InputError
from lm_experiments.launch.backend import Backend, check_launcher, task_of
from lm_experiments.report import show_report, write_report
from lm_experiments.rundir.results import run_status
from lm_experiments.rundir.study import Study, read_study
from lm_experiments.study.expand import (
    Job,
    ad_hoc_jobs,
    seed_of,
    seeds_of,
    study_jobs,
    swept_keys,
    without_seed,
)
from lm_experiments.study.plan import checked, make_directory, plain, planned
from lm_experiments.study.preview import preview
from lm_experiments.study.record import Planned, first_of_each, record_sweep
from lm_experiments.study.summary import end_lines, offline_lines
from lm_experiments.study.tuning import tuned_study
from lm_experiments.training.config import RunConfig


class PlanningSweeper(Sweeper):
    """Runs a declared study, or every combination of the values given.

    All runs are checked before any is trained. Runs that are done are not started again. One that
    fails does not stop the others; the end says which, and why.
    """

    __module__ = "hydra_plugins.lm_experiments"

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra gives, and make the launcher the configuration asks for."""
        self.base = config
        self.loader = hydra_context.config_loader
        self.backend = Backend(config)
        self.launch = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context,
            task_function=task_of(self.backend.kind, task_function),
            config=config,
        )
        self.launched = 0

    def sweep(self, arguments: list[str]) -> Any:
        """Plan the runs the arguments describe, train those that are missing, and report.

        Raises:
            SystemExit: where a run failed.
        """
        parser = OverridesParser.create(config_loader=self.loader)
        overrides = parser.parse_overrides(arguments)
        self._check_own_keys()
        study = self._study(overrides)
        if study is not None and study.tune is not None:
            runs = tuned_study(self, study, overrides)
        else:
            runs = self._plain_sweep(study, overrides)
        if runs:
            self._report(runs)

    def _check_own_keys(self) -> None:
        if self.base.on_failure not in ("continue", "stop"):
            raise InputError(
                f"on_failure={self.base.on_failure} is not known; it can be continue or stop."
            )
        if not isinstance(self.base.retries, int) or self.base.retries < 0:
            raise InputError(f"retries={self.base.retries} must be a whole number, 0 or more.")

    def _study(self, overrides: Sequence[Override]) -> Study | None:
        if self.base.study is None:
            return None
        study = read_study(OmegaConf.to_container(self.base.study, resolve=True))  # type: ignore[arg-type]
        return dataclasses.replace(study, seeds=seeds_of(study, overrides))

    def _plain_sweep(self, study: Study | None, overrides: Sequence[Override]) -> list[Planned]:
        name = self.base.name
        if study is None:
            jobs = ad_hoc_jobs(overrides, name, self.base.arm)
        else:
            jobs = study_jobs(study, overrides, name)
        runs = self.plan(jobs)
        if not preview(runs, study, self.backend, only=self.base.plan):
            return []
        runs = first_of_each(runs)
        self.train(runs, swept_keys(overrides), study)
        return runs

    def plan(self, jobs: Sequence[Job]) -> list[Planned]:
        """Compose and check all runs; only then read the corpora and find the runs' places."""
        composed: dict[tuple[str, ...], RunConfig] = {}
        for job in jobs:
            if (shared := without_seed(job)) not in composed:
                composed[shared] = self._composed(job)
        given = dict(zip(composed, self.backend.share_out(list(composed.values())), strict=True))
        configs = [_seeded(given[without_seed(job)], seed_of(job)) for job in jobs]
        return [Planned(job, planned(c)) for job, c in zip(jobs, configs, strict=True)]

    def _composed(self, job: Job) -> RunConfig:
        loaded = self.loader.load_sweep_config(self.base, list(job.overrides))
        check_launcher(self.base, loaded, job.words)
        return checked(self.backend.with_devices(plain(loaded)))

    def train(self, runs: Sequence[Planned], axes: Sequence[str], study: Study | None) -> None:
        """Record the runs as the sweep's, and train those that are missing, each once.

        ``study`` is what is declared, where something is.
        """
        folder = runs[0].run.directory.parent
        record_sweep(folder, runs, axes, study)
        waiting = [i for i in first_of_each(runs) if run_status(i.run.directory) != "done"]
        if not waiting or self.launch is None:
            return
        for item in waiting:
            make_directory(item.run)
        try:
            self.backend.train(self.launch, waiting, self.launched)
        except SystemExit:
            print(f"Stopped. The same command continues {folder}.")
            raise
        self.launched += len(waiting)

    def _report(self, runs: Sequence[Planned]) -> None:
        folder = runs[0].run.directory.parent
        distinct = [item.run for item in first_of_each(runs)]
        print("\n".join(end_lines(distinct)))
        try:
            show_report(write_report(folder))
        except (InputError, OSError) as error:
            print(f"No table: {error}")
        print("\n".join(offline_lines(folder)))
        if any(run_status(run.directory) != "done" for run in distinct):
            raise SystemExit(1)


def _seeded(config: RunConfig, seed: int | None) -> RunConfig:
    return config if seed is None else dataclasses.replace(config, seed=seed)


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
