"""The runs of a sweep on Ray: submitted, waited for, and submitted again if one was lost."""

from __future__ import annotations

import os
import queue
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_experiments.launch.endings import LOST, Attempts, Ending, failed, finish
from lm_experiments.launch.ray_cluster import Cluster, check_versions, in_time, training_nodes
from lm_experiments.launch.ray_worker import (
    RemoteTask,
    ask_to_stop,
    pack,
    train_remotely,
    unpack,
)
from lm_experiments.launch.resources import Share
from lm_experiments.launch.task import Policy, Task
from lm_experiments.rundir.results import INTERRUPTED, RunError

LOOK_EVERY = 5.0
# How long runs that were asked to stop may take to save themselves.
STOP_SECONDS = 120.0
ANSWER_SECONDS = 10.0
# Variables that a run on another machine needs as much as one here.
PASSED_ON = ("WANDB_", "HF_", "LM_EXPERIMENTS_")


def train_on_ray(cluster: Cluster, share: Share, tasks: Sequence[Task], policy: Policy) -> None:
    """Train runs, as many at once as there is room for.

    Raises:
        InputError: if the cluster cannot train them.
        SystemExit: if a signal came, or a failure ends the sweep.
    """
    # A node sees this file exactly where it sees the run directories too.
    shared = tasks[0].directory.parent.absolute() / f".ray-{uuid.uuid4().hex}"
    with cluster.connected():
        shared.touch()
        try:
            _Sweep(cluster, shared, share, policy).train(tasks)
        finally:
            shared.unlink(missing_ok=True)


class _Sweep:
    """The runs that Ray has not finished, and how often each has been tried."""

    def __init__(self, cluster: Cluster, shared: Path, share: Share, policy: Policy) -> None:
        self.shared, self.share, self.policy = shared, share, policy
        self.stop_key = f"lm_experiments:stop:{shared.name}".encode()
        self.is_remote = cluster.address is not None
        machines = cluster.inspect(str(shared)) if self.is_remote else []
        check_versions(machines)
        self.all_shared = all(machine["shared"] for machine in machines)
        self.function = cluster.function(train_remotely, share, machines)
        self.open: dict[Any, Task] = {}
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.attempts: dict[Path, Attempts] = {}

    def train(self, tasks: Sequence[Task]) -> None:
        """Train all runs."""
        try:
            for task in tasks:
                self.attempts[task.directory] = Attempts(self.policy.retries)
                self._submit(task)
            while self.open:
                self._wait()
        except BaseException:
            self._stop()
            raise

    def _submit(self, task: Task) -> None:
        import ray

        absolute = Task(task.directory.absolute(), task.code_paths, task.devices)
        passed = {k: v for k, v in os.environ.items() if k.startswith(PASSED_ON)}
        remote = RemoteTask(
            task=absolute,
            working_dir=str(Path.cwd()),
            shared=str(self.shared),
            stop_key=self.stop_key,
            environment=passed if self.is_remote else {},
            packed=[] if self.all_shared else [ray.put(pack(absolute.directory))],
            ends_sweep=self.policy.stop_on_failure and self.attempts[task.directory].is_last,
        )
        reference = self.function.remote(remote)
        reference.future().add_done_callback(lambda _: self.ended.put(reference))
        self.open[reference] = task

    def _next(self) -> tuple[Task, Ending] | None:
        """Return a run that has ended, its directory copied here; None if none ends in time."""
        # While ray.wait waits, a signal that ends this process would be an exit with code 1.
        try:
            reference = self.ended.get(timeout=LOOK_EVERY)
        except queue.Empty:
            return None
        task = self.open.pop(reference)
        return task, _ending(reference, task)

    def _wait(self) -> None:
        if (found := self._next()) is None:
            nodes, share = [node["Resources"] for node in training_nodes()], self.share
            if not any(n["CPU"] >= share.cpus and n.get("GPU", 0) >= share.gpus for n in nodes):
                print("No machine is left that could train the remaining runs.", flush=True)
                raise SystemExit(1)
            return
        task, ending = found
        directory = task.directory
        if self.attempts[directory].again(directory, ending):
            self._submit(task)
            return
        if ending.status == LOST:
            lost = RunError("ProcessDied", "It was lost with its worker each time.", None)
            ending = failed(directory, lost)
        finish(directory, ending, self.policy)

    def _stop(self) -> None:
        """Let the runs that are being trained save themselves, and wait until they have."""
        if not in_time(lambda: ask_to_stop(self.stop_key), ANSWER_SECONDS):
            return
        deadline = time.monotonic() + STOP_SECONDS
        while self.open and time.monotonic() < deadline:
            self._next()


def _ending(reference: Any, task: Task) -> Ending:
    """Return how a run ended: it is lost with its worker or node, or if a signal ended it."""
    import ray

    try:
        ending, packed = ray.get(reference)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError:
        return Ending(LOST)
    if packed is not None:
        unpack(packed, task.directory)
    assert isinstance(ending, Ending)
    return Ending(LOST) if ending.status == INTERRUPTED else ending
