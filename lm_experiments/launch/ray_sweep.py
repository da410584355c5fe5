"""The runs of a sweep on Ray: submitted, waited for, and asked to stop."""

from __future__ import annotations

import os
import queue
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_experiments.launch.endings import LOST, Ending
from lm_experiments.launch.ray_cluster import Cluster, check_versions, in_time, training_nodes
from lm_experiments.launch.ray_files import copy_from, this_node
from lm_experiments.launch.ray_worker import RemoteTask, ask_to_stop, train_remotely
from lm_experiments.launch.resources import Share
from lm_experiments.launch.schedule import train_all
from lm_experiments.launch.task import Policy, Task
from lm_experiments.rundir.results import INTERRUPTED

LOOK_EVERY = 5.0
# How long runs that were asked to stop may take to save themselves.
STOP_SECONDS = 120.0
ANSWER_SECONDS = 10.0
# Variables that a run on another machine needs as much as one here.
PASSED_ON = ("WANDB_", "HF_", "LM_EXPERIMENTS_")


def train_on_ray(
    cluster: Cluster,
    share: Share,
    tasks: Sequence[Task],
    policy: Policy,
    variables: Mapping[str, str],
) -> None:
    """Train runs, as many at once as there is room for, with ``variables`` in their environment.

    Raises:
        InputError: if the cluster cannot train them.
        SystemExit: if a signal came, or a failure ends the sweep.
    """
    # A node sees this file exactly where it sees the run directories too.
    shared = tasks[0].directory.parent.absolute() / f".ray-{uuid.uuid4().hex}"
    with cluster.connected():
        shared.touch()
        try:
            train_all(_RayRuns(cluster, shared, share, variables), tasks, policy)
        finally:
            shared.unlink(missing_ok=True)


class _RayRuns:
    """The runs that Ray has not finished."""

    def __init__(
        self, cluster: Cluster, shared: Path, share: Share, variables: Mapping[str, str]
    ) -> None:
        self.shared, self.share = shared, share
        self.stop_key = f"lm_experiments:stop:{shared.name}".encode()
        is_remote = cluster.address is not None
        passed = {k: v for k, v in os.environ.items() if k.startswith(PASSED_ON) and is_remote}
        self.environment = {**passed, **variables}
        machines = cluster.inspect(str(shared)) if is_remote else []
        check_versions(machines)
        self.home = this_node()
        self.function = cluster.function(train_remotely, share, machines)
        self._open: dict[Any, Task] = {}
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @property
    def are_open(self) -> bool:
        """Whether one has not been returned by `next` yet."""
        return bool(self._open)

    @property
    def have_room(self) -> bool:
        """Whether one more can be started: Ray keeps those for which there is no room yet."""
        return True

    def start(self, task: Task, ends_sweep: bool) -> None:
        """Submit a run."""
        absolute = Task(task.directory.absolute(), task.code_paths, task.devices)
        remote = RemoteTask(
            task=absolute,
            working_dir=str(Path.cwd()),
            shared=str(self.shared),
            stop_key=self.stop_key,
            home=self.home,
            environment=self.environment,
            ends_sweep=ends_sweep,
        )
        reference = self.function.remote(remote)
        reference.future().add_done_callback(lambda _: self.ended.put(reference))
        self._open[reference] = task

    def next(self) -> tuple[Task, Ending] | None:
        """Return a run that has ended, its directory copied here; None if none ends in time.

        SystemExit if no machine is left for the others.
        """
        if (found := self._look()) is None:
            nodes, share = [node["Resources"] for node in training_nodes()], self.share
            if not any(n["CPU"] >= share.cpus and n.get("GPU", 0) >= share.gpus for n in nodes):
                print("No machine is left that could train the remaining runs.", flush=True)
                raise SystemExit(1)
        return found

    def stop(self) -> None:
        """Let the runs that are being trained save themselves, and wait until they have."""
        if not in_time(lambda: ask_to_stop(self.stop_key), ANSWER_SECONDS):
            return
        deadline = time.monotonic() + STOP_SECONDS
        while self._open and time.monotonic() < deadline:
            self._look()

    def _look(self) -> tuple[Task, Ending] | None:
        # While ray.wait waits, a signal that ends this process would be an exit with code 1.
        try:
            reference = self.ended.get(timeout=LOOK_EVERY)
        except queue.Empty:
            return None
        task = self._open.pop(reference)
        return task, _ending(reference, task)


def _ending(reference: Any, task: Task) -> Ending:
    """Return how a run ended: it is lost with its worker or node, or if a signal ended it."""
    import ray

    try:
        ending, elsewhere = ray.get(reference)
        if elsewhere is not None:
            node, directory = elsewhere
            copy_from(node, directory, task.directory)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError:
        return Ending(LOST)
    assert isinstance(ending, Ending)
    return Ending(LOST) if ending.status == INTERRUPTED else ending
