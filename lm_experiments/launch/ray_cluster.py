"""Runs on Ray: on the GPUs or cores of this machine, or on a cluster that runs already."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lm_experiments.errors import InputError
from lm_experiments.launch import ray_probe as cluster_probe
from lm_experiments.launch import ray_worker as cluster_worker
from lm_experiments.launch.memory import cores, free_gpu_memory, free_memory
from lm_experiments.launch.ray_worker import Ended, Task, unpack
from lm_experiments.launch.resources import Node, Share
from lm_experiments.study.plan import PlannedRun

# Read by Ray when it is imported: no prefix before each line, and no line held back as a repeat.
QUIET = {
    "RAY_DISABLE_WORKER_LOG_PREFIX": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_FLUSH_DRIVER_LOGS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# Variables that a run on another machine needs as much as one here.
PASSED_ON = ("WANDB_", "HF_", "LM_EXPERIMENTS_")
CONNECT_SECONDS = 10
HEALTH_SECONDS = 20
SHUTDOWN_SECONDS = 30
# The least that Ray takes: results are files, and only those of far machines pass through it.
OBJECT_STORE_BYTES = 78643200
OF_RESOURCES = ("num_cpus", "num_gpus", "max_calls", "max_retries", "runtime_env")
HERE = "this machine"


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
        """What sentences call it."""
        return f"the Ray cluster at {self.address}" if self.address else HERE

    def nodes(self) -> list[Node]:
        """Return the machines and what they have for runs; of a cluster, what it says.

        Raises:
            InputError: where the cluster cannot be reached.
        """
        if self.address is None:
            gpus = self.init.get("num_gpus")
            cpus = self.init.get("num_cpus") or cores()
            if gpus is None:
                return [Node(cpus, _gpu_count(), free_memory(), free_gpu_memory())]
            return [Node(cpus, gpus, free_memory())]
        self.connect()
        return [
            Node(resources.get("CPU", 0), resources.get("GPU", 0), int(resources.get("memory", 0)))
            for resources in (node["Resources"] for node in _alive())
            if resources.get("CPU", 0)
        ]

    def connect(self) -> None:
        """Start Ray, or connect to the cluster; nothing where that is done.

        Raises:
            InputError: where the cluster cannot be reached.
        """
        os.environ.update({key: os.environ.get(key, value) for key, value in QUIET.items()})
        import ray

        if ray.is_initialized():
            return
        logging.getLogger("ray").setLevel(logging.ERROR)
        with _signals_kept():
            if self.address is None:
                self._start()
            else:
                self._join(self.address)

    def _start(self) -> None:
        import ray

        asked = {
            "num_cpus": cores(),
            "num_gpus": _gpu_count() if "num_gpus" not in self.init else None,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "logging_level": logging.ERROR,
        }
        ray.init(address="local", **{**asked, **self.init})

    def _join(self, address: str) -> None:
        import ray

        check_reachable(address)
        try:
            ray.init(address=address, **{"logging_level": logging.ERROR, **self.init})
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(
                f"ray.address={address} cannot be used: {' '.join(str(error).split())}"
            ) from None


def read_cluster(launcher: DictConfig, address: str | None) -> Cluster:
    """Return what the launcher's configuration says.

    Args:
        launcher: ``hydra.launcher``.
        address: ``ray.address``, None where it is not given.

    Raises:
        InputError: where the launcher's keys say what others decide.
    """
    values: Any = OmegaConf.to_container(launcher, resolve=True)
    init, remote = dict(values["ray"]["init"] or {}), dict(values["ray"]["remote"] or {})
    for key in OF_RESOURCES:
        if key in remote:
            raise InputError(
                f"hydra.launcher.ray.remote.{key} is chosen by this program; "
                "type resources.gpus=... or resources.cpus=... to say what a run gets."
            )
    if (said := init.pop("address", None)) is not None:
        raise InputError(f"hydra.launcher.ray.init.address is said by ray.address={said}.")
    return Cluster({k: v for k, v in init.items() if v is not None}, remote, address)


def check_reachable(address: str) -> None:
    """Wait a bounded time for an answer of the cluster.

    Raises:
        InputError: where there is none, or the address is none.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdecimal():
        raise InputError(
            f"ray.address={address} is not an address of a Ray head; type ray.address=HOST:6379, "
            "or ray.address=auto on a machine of the cluster."
        )
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS):
            pass
    except OSError as error:
        raise InputError(
            f"ray.address={address} cannot be reached ({error}); start Ray there with "
            f"ray start --head --port={port}, or leave ray.address out to use this machine."
        ) from None
    if not _is_head(address):
        raise InputError(
            f"ray.address={address} answers, but not as the head of a Ray cluster; "
            "type the address that ray start --head printed there."
        )


def _is_head(address: str) -> bool:
    """Ask for the health of a cluster, in a process that Ray may end or let hang."""
    command = (sys.executable, "-m", "ray.scripts.scripts", "health-check", "--skip-version-check")
    try:
        done = subprocess.run(
            [*command, "--address", address], capture_output=True, timeout=HEALTH_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


@contextmanager
def submitting(cluster: Cluster, folder: Path, share: Share) -> Iterator[Submission]:
    """Yield what starts runs on the cluster; after it, Ray and what it started are gone.

    Args:
        folder: the sweep's, in which the run directories are.

    Raises:
        InputError: where a node has another version of the code.
    """
    # Seen by a node exactly where it sees the run directories too.
    shared = folder.absolute() / f".ray-{uuid.uuid4().hex}"
    shared.touch()
    try:
        cluster.connect()
        yield Submission(cluster, shared, share)
    finally:
        shared.unlink(missing_ok=True)
        if not _in_time(_shut_down, SHUTDOWN_SECONDS):
            # A signal to all processes ended Ray's own first: nothing answers any more.
            stop = sys.exc_info()[1]
            os._exit(stop.code if isinstance(stop, SystemExit) and stop.code else 1)  # type: ignore[arg-type]


class Submission:
    """Starts runs on a cluster, and brings home what they came to."""

    def __init__(self, cluster: Cluster, shared: Path, share: Share) -> None:
        import ray

        self.shared = shared
        self.stop_key = f"lm_experiments:stop:{shared.name}".encode()
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.far = cluster.address is not None
        looks = _look_at_nodes(str(shared)) if self.far else []
        check_versions(looks)
        self.all_shared = all(look["shared"] for look in looks)
        options = {
            "num_cpus": share.cpus,
            "num_gpus": share.gpus,
            # A run has a process of its own, which takes what it held with it.
            "max_calls": 0,
            "max_retries": 0,
            **cluster.remote,
        }
        if any(look["code_hash"] is None for look in looks):
            package = Path(cluster_probe.__file__).parents[1]
            options["runtime_env"] = {"py_modules": [str(package)]}
        self.remote = ray.remote(**options)(cluster_worker.train)

    def start(self, run: PlannedRun) -> Any:
        """Hand a run to Ray; return what stands for its end."""
        import ray

        directory = run.directory.absolute()
        packed = [] if self.all_shared else [ray.put(cluster_worker.pack(directory))]
        passed = {k: v for k, v in os.environ.items() if k.startswith(PASSED_ON)}
        task = Task(
            directory=str(directory),
            folder=str(Path.cwd()),
            identity=run.identity,
            code_paths=run.config.code_paths,
            devices=run.config.trainer.devices,
            shared=str(self.shared),
            stop_key=self.stop_key,
            environment=passed if self.far else {},
            packed=packed,
        )
        reference = self.remote.remote(task)
        reference.future().add_done_callback(lambda _: self.ended.put(reference))
        return reference

    def wait(self, seconds: float) -> Any:
        """Return what stands for a run that has ended, None where none ends in time."""
        # While ray.wait waits, a signal that ends this process would be an exit with code 1.
        with contextlib.suppress(queue.Empty):
            return self.ended.get(timeout=seconds)

    def end_of(self, reference: Any, directory: Path) -> Ended | None:
        """Return how a run ended, its directory home; None where its worker or node was lost."""
        import ray

        try:
            ended = ray.get(reference)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError:
            return None
        assert isinstance(ended, Ended)
        if ended.packed is not None:
            unpack(ended.packed, directory)
        return ended

    def stop(self) -> bool:
        """Ask every run to save itself and end, and let none start; return whether Ray answers."""
        from ray.experimental.internal_kv import _internal_kv_put

        return _in_time(lambda: _internal_kv_put(self.stop_key, b"1"), CONNECT_SECONDS)

    def has_room(self, share: Share) -> bool:
        """Return whether a machine is left that can hold a run at all."""
        return any(
            node["Resources"].get("CPU", 0) >= share.cpus
            and node["Resources"].get("GPU", 0) >= share.gpus
            for node in _alive()
        )


def check_versions(looks: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError where a node has other code than this process.

    Args:
        looks: what `cluster_probe.look` found, and the ``node`` it was on.
    """
    here = cluster_probe.look("")
    for look in looks:
        if look["code_hash"] not in (None, here["code_hash"]):
            raise InputError(
                f"Node {look['node']} has another version of the code ({look['version']}, files "
                f"{look['code_hash'][:8]}) than this machine ({here['version']}, files "
                f"{here['code_hash'][:8]}); install the same on both."
            )


def _look_at_nodes(shared: str) -> list[dict[str, Any]]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(cluster_probe)  # type: ignore[no-untyped-call]
    look = ray.remote(num_cpus=0)(cluster_probe.look)
    nodes = [node for node in _alive() if node["Resources"].get("CPU", 0)]
    pinned = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    asked = [look.options(scheduling_strategy=strategy).remote(shared) for strategy in pinned]
    found = ray.get(asked, timeout=120)
    names = [node["NodeManagerAddress"] for node in nodes]
    return [{**look, "node": name} for look, name in zip(found, names, strict=True)]


def _shut_down() -> None:
    import ray

    ray.shutdown()


def _in_time(action: Callable[[], object], seconds: float) -> bool:
    """Do what may hang, for so long at most; return whether it was done."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _alive() -> list[dict[str, Any]]:
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def _gpu_count() -> int:
    import torch

    return torch.cuda.device_count()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Put back the handlers that Ray replaces with its own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
