"""Runs as jobs of SLURM, through submitit: what a job asks for, and how it is queued again."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lm_experiments.errors import InputError
from lm_experiments.launch.endings import failed
from lm_experiments.launch.local import train_side_by_side
from lm_experiments.launch.memory import gibibytes
from lm_experiments.launch.resources import Demand, Resources, Share
from lm_experiments.launch.task import Policy, Task
from lm_experiments.rundir.pause import pause_of
from lm_experiments.rundir.results import FAILED, INTERRUPTED, WAITING, RunError, run_status
from lm_experiments.rundir.words import counted
from lm_experiments.training.signals import StopSignals

# The options that submitit has for every kind of cluster; others carry the cluster's name.
COMMON = {"name", "nodes", "mem_gb", "timeout_min", "stderr_to_stdout"}
COMMON |= {"cpus_per_task", "gpus_per_node", "tasks_per_node"}
# Cores for each process of a run, since those of the cluster are not known here.
CPUS = 4
# How long sacct may call a job ended that is being queued again, and how often it is asked.
AGAIN_SECONDS = 60.0
LOOK_EVERY = 2.0
# Sent to a run so that it saves itself, whatever signal the job got.
SAVE = signal.SIGUSR1


def slurm_share(asked: Resources, demand: Demand, launcher: DictConfig) -> Share:
    """Return what each job asks the scheduler for.

    A part of a GPU or a core is an InputError, and so are the launcher's own keys for them.
    """
    for key, ours in (("cpus_per_task", "resources.cpus"), ("gpus_per_node", "resources.gpus")):
        if launcher.get(key) is not None:
            raise InputError(
                f"hydra.launcher.{key} is chosen by this program; type {ours}={launcher[key]}."
            )
    gpus = demand.devices * (not demand.on_cpu) if asked.gpus is None else asked.gpus
    cpus = CPUS * demand.devices if asked.cpus is None else asked.cpus
    for key, number in (("gpus", gpus), ("cpus", cpus)):
        if number != int(number):
            raise InputError(
                f"resources.{key}={number:g} cannot be asked of SLURM, which gives whole ones; "
                f"type resources.{key}=1 or more."
            )
    if shutil.which("srun") is None:
        raise InputError(
            "hydra/launcher=slurm needs SLURM's commands, and this machine has none (srun); type "
            "it on a machine of the cluster, or hydra/launcher=ray for the GPUs of this one."
        )
    slots = int(launcher.array_parallelism)
    text = (
        f"one job per run, {slots} at once at most, each with {counted(gpus, 'GPU')} and "
        f"{counted(cpus, 'CPU')} for "
        f"{launcher.timeout_min} min at a time; one needs about {gibibytes(demand.memory)}."
    )
    return Share(cpus, gpus, slots, int(cpus), text)


def local_share(asked: Resources, demand: Demand) -> Share:
    """Return what each run gets if all start at once; InputError if a GPU is asked for."""
    if asked.gpus:
        raise InputError(
            f"resources.gpus={asked.gpus:g}, but hydra/launcher=submitit_local cannot share out "
            "GPUs; type hydra/launcher=ray."
        )
    cpus = demand.devices if asked.cpus is None else asked.cpus
    text = f"all runs at once on this machine, one needs about {gibibytes(demand.memory)}."
    return Share(cpus, 0, 1, max(1, int(cpus)), text)


def train_as_jobs(
    kind: str, options: DictConfig, share: Share, tasks: Sequence[Task], policy: Policy
) -> None:
    """Train each run as a job of its own, and wait for all of them.

    ``kind`` is slurm or submitit_local, ``options`` are ``hydra.launcher``. SystemExit if a
    failed run ends the sweep.
    """
    executor = _executor("slurm" if kind == "slurm" else "local", options, share)
    jobs = _submitted(executor, Job(policy), tasks)
    for job, task in zip(jobs, tasks, strict=True):
        _wait_for(job)
        status, log = run_status(task.directory), f"its log is {job.paths.stdout}."
        if status == WAITING:
            lost = f"Job {job.job_id} ended without a result; {log}"
            failed(task.directory, RunError("ProcessDied", lost, None))
        elif status == INTERRUPTED and pause_of(task.directory) is None:
            print(f"Job {job.job_id} ended before its run {task.directory.name} did; {log}")
        if policy.stop_on_failure and run_status(task.directory) == FAILED:
            for other in jobs:
                other.cancel(check=False)
            raise SystemExit(1)


def _submitted(executor: Any, work: Job, tasks: Sequence[Task]) -> list[Any]:
    """Return the jobs of the tasks; an InputError with what the scheduler said if it takes none."""
    from submitit.core.utils import FailedJobError

    try:
        return list(executor.map_array(work, tasks))
    except (FailedJobError, subprocess.CalledProcessError) as error:
        said = (str(error).strip().splitlines() or ["nothing"])[-1]
        raise InputError(
            f"SLURM did not take the jobs: {said}; type other hydra.launcher options."
        ) from error


def _wait_for(job: Any) -> None:
    """Wait until a job has ended for good.

    One that is queued again ends first, and for a while sacct may tell of the end alone.
    """
    job.wait()
    while not job.paths.result_pickle.exists() and _is_queued_again(job):
        job.wait()


def _is_queued_again(job: Any) -> bool:
    deadline = time.monotonic() + AGAIN_SECONDS
    while time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)
        # It does not ask again about a job that it takes for ended.
        job.watcher.clear()
        if not job.done(force_check=True):
            return True
        if job.paths.result_pickle.exists():
            return False
    return False


class Job:
    """What a job does: it trains one run, and saves it before submitit queues the job again."""

    def __init__(self, policy: Policy) -> None:
        self.policy = dataclasses.replace(policy, stop_on_failure=False)

    def __call__(self, task: Task) -> None:
        """Train the run of a job.

        submitit asks with a signal before a job's time is over, or when it is preempted. Its own
        handler ends the job at once; here it is called when the run has been saved.

        Raises:
            SystemExit: if the job ends before its run, queued again or not.
        """
        from submitit import JobEnvironment

        asked: list[int] = []

        def _save(number: int, frame: Any) -> None:
            asked.append(number)
            os.kill(os.getpid(), SAVE)

        number = JobEnvironment._usr_sig()
        requeue = signal.signal(number, _save)
        try:
            with StopSignals():
                train_side_by_side([task], self.policy)
        except SystemExit:
            if not asked or not callable(requeue):
                raise
            requeue(number, None)
        finally:
            signal.signal(number, requeue)

    def checkpoint(self, task: Task) -> Any:
        """Return the work of a job that is queued again, which is the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, task)


def _executor(cluster: str, options: DictConfig, share: Share) -> Any:
    """Return submitit's executor; the options are those of Hydra's launcher plugin."""
    import submitit

    values: Any = OmegaConf.to_container(options, resolve=True)
    folder = values.pop("submitit_folder")
    timeouts = {"slurm_max_num_timeout": values.pop("max_num_timeout", 0)}
    executor = submitit.AutoExecutor(folder, cluster, **(timeouts if cluster == "slurm" else {}))
    values |= {"cpus_per_task": int(share.cpus), "gpus_per_node": int(share.gpus) or None}
    del values["_target_"]
    executor.update_parameters(
        **{key if key in COMMON else f"{cluster}_{key}": value for key, value in values.items()}
    )
    return executor
