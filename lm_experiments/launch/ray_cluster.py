"""Runs on Ray: on the GPUs or cores of this machine, or on a cluster that runs already."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from lm_experiments import source
from lm_experiments.errors import InputError, one_sentence
from lm_experiments.launch.machine import this_machine
from lm_experiments.launch.memory import cores
from lm_experiments.launch.resources import Node, Share

# Read by Ray when it is imported: no prefix before each line, and no repeated line left out.
QUIET = {
    "RAY_DISABLE_WORKER_LOG_PREFIX": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_FLUSH_DRIVER_LOGS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
HEALTH_SECONDS = 20
SHUTDOWN_SECONDS = 30
# The least that Ray takes: only runs of machines without the shared folder pass through it.
OBJECT_STORE_BYTES = 78643200
OF_RESOURCES = ("num_cpus", "num_gpus", "max_calls", "max_retries", "runtime_env")


@dataclass(frozen=True)
class Cluster:
    """Where Ray trains: what the launcher's configuration says of it.

    Attributes:
        init: arguments of ``ray.init``, ``address`` aside.
        remote: further arguments of ``ray.remote``.
        address: of a cluster that runs already; None for Ray on this machine.
    """

    init: dict[str, Any]
    remote: dict[str, Any]
    address: str | None

    @property
    def where(self) -> str:
        """Its name in messages."""
        return f"the Ray cluster at {self.address}" if self.address else "this machine"

    def nodes(self) -> list[Node]:
        """Return the machines and their free resources; InputError if none can be reached."""
        if self.address is None:
            here = this_machine()
            here = replace(here, cpus=self.init.get("num_cpus") or here.cpus)
            if (gpus := self.init.get("num_gpus")) is not None:
                here = replace(here, gpus=gpus, gpu_memory=None)
            return [here]
        self.connect()
        return [
            Node(resources["CPU"], resources.get("GPU", 0), int(resources.get("memory", 0)))
            for resources in (node["Resources"] for node in training_nodes())
        ]

    def connect(self) -> None:
        """Start Ray, or connect to the cluster; InputError if it cannot be reached."""
        os.environ.update({key: os.environ.get(key, value) for key, value in QUIET.items()})
        import ray

        if ray.is_initialized():
            return
        logging.getLogger("ray").setLevel(logging.ERROR)
        options: dict[str, Any] = {"logging_level": logging.ERROR}
        if self.address is not None:
            check_reachable(self.address)
        else:
            options |= {
                "num_cpus": cores(),
                "num_gpus": None if "num_gpus" in self.init else torch.cuda.device_count(),
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
            }
        try:
            with _signals_kept():
                ray.init(address=self.address or "local", **{**options, **self.init})
        except (ConnectionError, RuntimeError, ValueError) as error:
            if self.address is None:
                raise
            raise InputError(
                f"ray.address={self.address} cannot be used: {one_sentence(error)}"
            ) from None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to Ray; afterwards Ray and all that it started here are gone."""
        try:
            self.connect()
            yield
        finally:
            import ray

            if not in_time(ray.shutdown, SHUTDOWN_SECONDS):
                # A signal to all processes ended Ray's own first: nothing answers any more.
                stop = sys.exc_info()[1]
                os._exit(stop.code if isinstance(stop, SystemExit) and stop.code else 1)  # type: ignore[arg-type]

    def inspect(self, shared: str) -> list[dict[str, Any]]:
        """Return for each node its ``node`` name, and what `source.inspect_machine` finds there."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray.cloudpickle.register_pickle_by_value(source)  # type: ignore[no-untyped-call]
        inspect = ray.remote(num_cpus=0)(source.inspect_machine)
        nodes = training_nodes()
        pinned = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
        asked = [inspect.options(scheduling_strategy=place).remote(shared) for place in pinned]
        found = ray.get(asked, timeout=120)
        names = [node["NodeManagerAddress"] for node in nodes]
        return [{**machine, "node": name} for machine, name in zip(found, names, strict=True)]

    def function(
        self, function: Callable[..., Any], share: Share, machines: Sequence[Mapping[str, Any]]
    ) -> Any:
        """Return a function as Ray calls it; machines without the package are sent it."""
        import ray

        options = {
            "num_cpus": share.cpus,
            "num_gpus": share.gpus,
            # A run has a process of its own, which takes what it held with it.
            "max_calls": 0,
            "max_retries": 0,
            **self.remote,
        }
        if any(machine["code_hash"] is None for machine in machines):
            options["runtime_env"] = {"py_modules": [str(Path(source.__file__).parent)]}
        return ray.remote(**options)(function)


def read_cluster(launcher: DictConfig, address: str | None) -> Cluster:
    """Read the launcher's configuration; InputError for keys that this program sets itself."""
    values: Any = OmegaConf.to_container(launcher, resolve=True)
    init, remote = dict(values["ray"]["init"] or {}), dict(values["ray"]["remote"] or {})
    for key in OF_RESOURCES:
        if key in remote:
            raise InputError(
                f"hydra.launcher.ray.remote.{key} is chosen by this program; "
                "type resources.gpus=... or resources.cpus=... to say what a run gets."
            )
    if (said := init.pop("address", None)) is not None:
        raise InputError(f"hydra.launcher.ray.init.address is typed as ray.address={said}.")
    return Cluster({k: v for k, v in init.items() if v is not None}, remote, address)


def check_reachable(address: str) -> None:
    """Raise InputError if no head of a Ray cluster answers at the address in time."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdecimal():
        raise InputError(
            f"ray.address={address} is not an address of a Ray head; type ray.address=HOST:6379, "
            "or ray.address=auto on a machine of the cluster."
        )
    # In a process of its own, since Ray may end the process that asks, or let it hang.
    check = ("-m", "ray.scripts.scripts", "health-check", "--skip-version-check", "--address")
    command = [sys.executable, *check, address]
    try:
        subprocess.run(command, capture_output=True, timeout=HEALTH_SECONDS, check=True)
    except subprocess.SubprocessError:
        raise InputError(
            f"ray.address={address} cannot be reached as the head of a Ray cluster; start Ray "
            f"there with ray start --head --port={port}, or leave ray.address out to use this "
            "machine."
        ) from None


def check_versions(machines: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError if a node of `Cluster.inspect` has other code than this machine."""
    here = source.inspect_machine("")
    for machine in machines:
        if machine["code_hash"] not in (None, here["code_hash"]):
            raise InputError(
                f"Node {machine['node']} has another version of the code ({machine['version']}, "
                f"files {machine['code_hash'][:8]}) than this machine ({here['version']}, files "
                f"{here['code_hash'][:8]}); install the same on both."
            )


def in_time(action: Callable[[], object], seconds: float) -> bool:
    """Call ``action``, which may hang; return whether it has returned within ``seconds``."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def training_nodes() -> list[dict[str, Any]]:
    """Return Ray's description of the nodes that answer and have CPUs."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0)]


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Put back the handlers that Ray replaces with its own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
