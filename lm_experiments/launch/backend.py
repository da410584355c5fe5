"""Where the runs of a sweep are trained: by which of Hydra's launchers, how many at once."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hydra.conf import HydraConf
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf

from lm_experiments.cli.errors import not_installed
from lm_experiments.errors import InputError
from lm_experiments.launch.fork import start_server
from lm_experiments.launch.memory import run_bytes
from lm_experiments.launch.resources import (
    Demand,
    Node,
    Share,
    check_enough,
    choose,
    devices_of,
    read_resources,
)
from lm_experiments.training.config import RunConfig

if TYPE_CHECKING:
    from lm_experiments.launch.ray_cluster import Cluster
    from lm_experiments.study.record import Planned

BASIC, RAY, SLURM, LOCAL = "basic", "ray", "slurm", "submitit_local"
KINDS = {
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher": BASIC,
    "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher": RAY,
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher": SLURM,
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher": LOCAL,
}
# What must be importable for a launcher.
NEEDED = {
    RAY: ("ray", "hydra_plugins.hydra_ray_launcher"),
    SLURM: ("submitit", "hydra_plugins.hydra_submitit_launcher"),
    LOCAL: ("submitit", "hydra_plugins.hydra_submitit_launcher"),
}


class Backend:
    """The launcher of a sweep, and what it gives each run.

    Attributes:
        kind: basic, ray, slurm or submitit_local.
        share: what each run gets; None where one runs after another, with all there is.
    """

    def __init__(self, config: DictConfig) -> None:
        """Check what the configuration says of launcher and resources.

        Raises:
            InputError: where the launcher cannot be used, or would ignore what was typed.
        """
        self.config = config
        self.kind = _kind(config)
        self.asked = read_resources(config.resources)
        self.share: Share | None = None
        _check_used(self.kind, config, self.asked.given)

    @property
    def far(self) -> bool:
        """Whether runs may be trained on other machines than this one."""
        return self.kind == SLURM or self.config.ray.address is not None

    def with_devices(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a composed configuration with the devices that its share of GPUs means."""
        if self.kind == BASIC or not isinstance(values["trainer"].get("devices"), int):
            return dict(values)
        if self.kind == RAY and self.asked.gpus:
            check_enough("resources.gpus", self.asked.gpus, self._nodes, self._cluster.where)
        devices = devices_of(self.asked, values["trainer"]["devices"])
        return {**values, "trainer": {**values["trainer"], "devices": devices}}

    def share_out(self, configs: Sequence[RunConfig]) -> list[RunConfig]:
        """Choose what each run gets, once per sweep; return the runs with their threads.

        Raises:
            InputError: where there is not as much as was asked for, or as the runs need.
        """
        if self.kind == BASIC:
            return list(configs)
        if self.share is None:
            self.share = self._choose(configs)
        if self.far and self.share.gpus:
            _check_precision(configs)
        threads = self.share.threads
        return [c if c.trainer.threads else _with_threads(c, threads) for c in configs]

    def train(self, launch: Launcher, items: Sequence[Planned], first: int) -> None:
        """Train runs whose directories are made.

        Args:
            first: the number of the first among all that this sweep starts.
        """
        if self.kind == RAY:
            from lm_experiments.launch.ray_sweep import train_on_ray

            assert self.share is not None
            runs, stop = [item.run for item in items], self.config.on_failure == "stop"
            train_on_ray(self._cluster, self.share, runs, self.config.retries, stop)
            return
        if self.kind == BASIC:
            start_server()
        else:
            self._ask(launch)
        launch.launch([item.words for item in items], initial_job_idx=first)

    def _ask(self, launch: Any) -> None:
        """Tell submitit what the scheduler is to be asked for."""
        assert self.share is not None
        launch.params["cpus_per_task"] = int(self.share.cpus)
        launch.params["gpus_per_node"] = int(self.share.gpus) or None

    def _choose(self, configs: Sequence[RunConfig]) -> Share:
        from lm_experiments.study.plan import counted

        demand = Demand(
            devices=max(config.trainer.devices for config in configs),
            on_cpu=all(config.trainer.accelerator == "cpu" for config in configs),
            memory=max(run_bytes(config, counted(config.model)) for config in configs),
        )
        if self.kind == RAY:
            return choose(self.asked, self._nodes, self._cluster.where, demand)
        from lm_experiments.launch.slurm import local_share, slurm_share

        if self.kind == LOCAL:
            return local_share(self.asked, demand)
        return slurm_share(self.asked, demand, self.config.hydra.launcher)

    @cached_property
    def _nodes(self) -> list[Node]:
        return self._cluster.nodes()

    @cached_property
    def _cluster(self) -> Cluster:
        from lm_experiments.launch.ray_cluster import read_cluster

        return read_cluster(self.config.hydra.launcher, self.config.ray.address)


def task_of(kind: str, task: Any) -> Any:
    """Return what a launcher's jobs run: ``task``, or what can be queued again."""
    if kind not in (SLURM, LOCAL):
        return task
    from lm_experiments.launch.slurm import run_queued

    return run_queued


def check_alone(hydra: HydraConf, values: Mapping[str, Any]) -> None:
    """Refuse for a single run what only sweeps have: a launcher, and shares of machines.

    Raises:
        InputError: where one of them was typed.
    """
    launcher = hydra.runtime.choices.get("hydra/launcher")
    typed = {"hydra/launcher": None if launcher == BASIC else launcher}
    typed |= {"ray.address": values["ray"]["address"]}
    typed |= read_resources(values["resources"]).given
    for key, value in typed.items():
        if value is not None:
            raise InputError(f"{key}={_text(value)} is for a sweep; add -m, or leave it out.")


def check_launcher(base: DictConfig, job: DictConfig, words: Sequence[str]) -> None:
    """Refuse a job whose own choices name another launcher: a sweep has one.

    Raises:
        InputError: where the job's launcher is not that of the sweep.
    """
    ours, its = (OmegaConf.to_container(c.hydra.launcher, resolve=False) for c in (base, job))
    if ours == its:
        return
    names = [str(c.hydra.runtime.choices.get("hydra/launcher")) for c in (base, job)]
    raise InputError(
        f"{' '.join(words)} sets hydra/launcher to {names[1]} for its run alone, and the sweep "
        f"has {names[0]}; choose it once for all runs: hydra/launcher={names[1]}"
    )


def _kind(config: DictConfig) -> str:
    target = str(OmegaConf.select(config, "hydra.launcher._target_"))
    if target not in KINDS:
        name = config.hydra.runtime.choices.get("hydra/launcher")
        raise InputError(
            f"hydra/launcher={name} is not known to keep runs apart; it can be "
            f"{', '.join(KINDS.values())}."
        )
    kind = KINDS[target]
    if not all(map(_installed, NEEDED.get(kind, ()))):
        raise InputError(not_installed(kind))
    return kind


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _check_used(kind: str, config: DictConfig, given: Mapping[str, float]) -> None:
    """Refuse what the launcher would not look at."""
    unused = {"ray.address": config.ray.address} if kind != RAY else {}
    unused |= given if kind == BASIC else {}
    for key, value in unused.items():
        if value is not None:
            raise InputError(
                f"{key}={_text(value)} is not for hydra/launcher={kind}; type hydra/launcher=ray."
            )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check_precision(configs: Sequence[RunConfig]) -> None:
    """Require a precision where auto would be looked up on a machine that does not train."""
    import torch

    if torch.cuda.is_available():
        return
    if any(config.trainer.precision == "auto" for config in configs):
        raise InputError(
            "trainer.precision=auto cannot be looked up here, since the runs have GPUs and this "
            "machine has none; type trainer.precision=bf16-mixed, or 32-true."
        )


def _with_threads(config: RunConfig, threads: int) -> RunConfig:
    return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, threads=threads))
