"""Which launcher trains the runs of a sweep, and the resources of each run.

It is chosen with ``hydra/launcher=`` and its options, like Hydra's own launchers; the runs are
started by this package.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig

from lm_experiments.errors import InputError, not_installed
from lm_experiments.launch.gpu_sharing import TIME_SLICES, gpu_sharing, how_shared
from lm_experiments.launch.local import train_side_by_side
from lm_experiments.launch.machine import places, this_machine
from lm_experiments.launch.memory import cores, run_bytes
from lm_experiments.launch.resources import (
    Demand,
    Node,
    Resources,
    Share,
    check_enough,
    choose,
    devices_of,
)
from lm_experiments.launch.task import Policy, Task
from lm_experiments.model import count
from lm_experiments.training.config import RunConfig

if TYPE_CHECKING:
    from lm_experiments.launch.ray_cluster import Cluster

BASIC, RAY, SLURM, LOCAL = "basic", "ray", "slurm", "submitit_local"
KINDS = {
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher": BASIC,
    "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher": RAY,
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher": SLURM,
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher": LOCAL,
}
# What each launcher does with the runs of a sweep.
LAUNCHERS = {
    BASIC: "runs side by side on this machine, one for each GPU or core, in processes of their own",
    RAY: "the same through Ray, on this machine or on the machines of a Ray cluster",
    SLURM: "one SLURM job for each run, all in one array",
    LOCAL: "all runs at once on this machine, without GPUs",
}
# The module that must be importable for a launcher.
NEEDED = {RAY: "ray", SLURM: "submitit", LOCAL: "submitit"}


class Launcher:
    """Trains the runs of a sweep.

    Attributes:
        kind: basic, ray, slurm or submitit_local.
        share: what each run gets; None until it is chosen.
    """

    def __init__(
        self, options: DictConfig, name: str, asked: Resources, ray_address: str | None
    ) -> None:
        """Check the choice; InputError if it cannot be used, or would ignore a typed key."""
        self.options, self.asked, self.ray_address = options, asked, ray_address
        kind = KINDS.get(str(options.get("_target_")))
        if kind is None:
            raise InputError(
                f"hydra/launcher={name} is not known to keep runs apart; it can be "
                f"{', '.join(KINDS.values())}."
            )
        if kind in NEEDED and importlib.util.find_spec(NEEDED[kind]) is None:
            raise InputError(not_installed(f"hydra/launcher={kind}"))
        self.kind = kind
        self.share: Share | None = None
        no = f"is not for hydra/launcher={self.kind}; "
        if self.kind != RAY:
            _refuse({"ray.address": ray_address}, f"{no}type hydra/launcher=ray.")
        if self.kind != BASIC:
            _refuse({"resources.at_once": asked.at_once}, f"{no}leave it out.")

    @property
    def is_remote(self) -> bool:
        """Whether runs may be trained on other machines than this one."""
        return self.kind == SLURM or self.ray_address is not None

    @property
    def at_once(self) -> int | None:
        """How many runs are trained side by side, None where a scheduler decides."""
        if self.kind in (SLURM, LOCAL):
            return None
        return self.share.slots if self.share is not None else 1

    @property
    def threads(self) -> int | None:
        """The CPU threads of a run that types none, None before they are chosen."""
        return self.share.threads if self.share is not None else None

    def with_devices(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a composed configuration with as many devices as a run gets GPUs."""
        if not isinstance(values["trainer"].get("devices"), int):
            return dict(values)
        if self.kind in (BASIC, RAY) and self.asked.gpus:
            check_enough("resources.gpus", self.asked.gpus, self._nodes, self._where)
        devices = devices_of(self.asked, values["trainer"]["devices"])
        return {**values, "trainer": {**values["trainer"], "devices": devices}}

    def share_out(
        self, configs: Sequence[RunConfig], runs: int, recorded: int | None
    ) -> list[RunConfig]:
        """Choose what each run gets, once per sweep; return the configurations with their threads.

        Threads follow from what is asked, and not from what is left to train, since they change the
        last bits of a result.

        Args:
            runs: how many runs have these configurations.
            recorded: the threads that the sweep began with, None where it begins now.

        Raises:
            InputError: if there is less than was asked for, or than the runs need.
        """
        if self.share is None:
            self.share = self._choose(configs, runs, recorded)
        unseen = self.is_remote and self.share.gpus and not torch.cuda.is_available()
        if unseen and any(config.trainer.precision == "auto" for config in configs):
            raise InputError(
                "trainer.precision=auto cannot be looked up here, since the runs have GPUs and "
                "this machine has none; type trainer.precision=bf16-mixed, or 32-true."
            )
        threads = self.share.threads
        trainers = [replace(c.trainer, threads=c.trainer.threads or threads) for c in configs]
        return [replace(c, trainer=t) for c, t in zip(configs, trainers, strict=True)]

    def train(self, tasks: Sequence[Task], policy: Policy) -> None:
        """Train runs whose directories are made; SystemExit as `finish`, or after a signal."""
        assert self.share is not None
        if self.kind == BASIC:
            with gpu_sharing(self.share.gpus) as found:
                where = [{**place, **found} for place in places(self.share)]
                train_side_by_side(tasks, policy, where)
        elif self.kind == RAY:
            from lm_experiments.launch.ray_sweep import train_on_ray

            with gpu_sharing(0 if self.is_remote else self.share.gpus) as found:
                train_on_ray(self._cluster, self.share, tasks, policy, found)
        else:
            from lm_experiments.launch.slurm import train_as_jobs

            train_as_jobs(self.kind, self.options, self.share, tasks, policy)

    def _choose(self, configs: Sequence[RunConfig], runs: int, recorded: int | None) -> Share:
        demand = Demand(
            devices=max(config.trainer.devices for config in configs),
            on_cpu=all(config.trainer.accelerator == "cpu" for config in configs),
            memory=max(map(run_bytes, configs)),
            parameters=min(count(config.model).parameters for config in configs),
            threads=max(config.trainer.threads or 0 for config in configs) or None,
        )
        if self.kind == BASIC:
            threads = demand.threads or self._threads(runs, recorded)
            demand = replace(demand, threads=threads, runs=runs, is_tried=True)
        if self.kind in (BASIC, RAY):
            share = choose(self.asked, self._nodes, self._where, demand)
            if not 0 < share.gpus < 1:
                return share
            shared = TIME_SLICES if self.is_remote else how_shared()
            text, room = (f"{said.rstrip('.')}; {shared}" for said in (share.text, share.room))
            return replace(share, text=text, room=room)
        from lm_experiments.launch.slurm import local_share, slurm_share

        if self.kind == LOCAL:
            return local_share(self.asked, demand)
        return slurm_share(self.asked, demand, self.options)

    def _threads(self, runs: int, recorded: int | None) -> int | None:
        """Return the threads of a run where they are settled before the cores are shared out."""
        if self.asked.cpus is not None:
            return None
        if recorded is not None:
            return min(recorded, cores())
        # As many as torch takes by itself, which may be fewer than there are cores.
        return torch.get_num_threads() if runs == 1 or self.asked.at_once == 1 else None

    @property
    def _where(self) -> str:
        return self._cluster.where if self.kind == RAY else "this machine"

    @cached_property
    def _nodes(self) -> list[Node]:
        return self._cluster.nodes() if self.kind == RAY else [this_machine()]

    @cached_property
    def _cluster(self) -> Cluster:
        from lm_experiments.launch.ray_cluster import read_cluster

        return read_cluster(self.options, self.ray_address)


def check_single(name: str | None, asked: Resources, ray_address: str | None) -> None:
    """Raise InputError for keys that only a sweep has."""
    chosen = None if name == BASIC else name
    given = {"hydra/launcher": chosen, "ray.address": ray_address, **asked.given}
    _refuse(given, "is for a sweep; add -m, or leave it out.")


def _refuse(given: Mapping[str, str | float | None], reason: str) -> None:
    for key, value in given.items():
        if value is not None:
            text = value if isinstance(value, str) else f"{value:g}"
            raise InputError(f"{key}={text} {reason}")
