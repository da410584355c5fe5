"""Runs as jobs of SLURM, through submitit: what a job asks for, and how it is queued again."""

from __future__ import annotations

import os
import signal
from typing import Any

from omegaconf import DictConfig

from lm_experiments.errors import InputError
from lm_experiments.launch.memory import gibibytes
from lm_experiments.launch.resources import Demand, Resources, Share
from lm_experiments.study.job import run_job
from lm_experiments.training.signals import StopSignals

# Cores for each process of a run: what the cluster has is not seen from here.
CPUS = 4
# What tells a run to save itself, whatever the scheduler told the job.
ASK = signal.SIGUSR1
OWN_KEYS = {"cpus_per_task": "resources.cpus", "gpus_per_node": "resources.gpus"}


def slurm_share(asked: Resources, demand: Demand, launcher: DictConfig) -> Share:
    """Return what each job asks the scheduler for; what there is shows only when it runs.

    Raises:
        InputError: for a part of a GPU or of a core, which SLURM does not give, and where the
            launcher's own keys say it too.
    """
    for key, ours in OWN_KEYS.items():
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
    slots = int(launcher.array_parallelism)
    text = (
        f"one job per run, {slots} at once at most, each with {gpus:g} GPUs and {cpus:g} CPUs for "
        f"{launcher.timeout_min} min at a time; one needs about {gibibytes(demand.memory)}."
    )
    return Share(cpus, gpus, slots, int(cpus), text)


def local_share(asked: Resources, demand: Demand) -> Share:
    """Return what each run gets of submitit's local executor, which starts all of them at once.

    Raises:
        InputError: where a GPU is asked for: all runs would use the first.
    """
    if asked.gpus:
        raise InputError(
            f"resources.gpus={asked.gpus:g}, but hydra/launcher=submitit_local cannot share out "
            "GPUs; type hydra/launcher=ray."
        )
    cpus = demand.devices if asked.cpus is None else asked.cpus
    text = f"all runs at once on this machine, one needs about {gibibytes(demand.memory)}."
    return Share(cpus, 0, 1, max(1, int(cpus)), text)


def run_queued(config: DictConfig) -> None:
    """Train the run of a job, and save it before submitit queues the job again.

    submitit asks with a signal before a job's time is over, or when it is preempted. Its own
    handler ends the job at once; here it is called when the run has been saved.

    Raises:
        SystemExit: where the job is to end, queued again or not.
    """
    from submitit import JobEnvironment

    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        os.kill(os.getpid(), ASK)

    number = JobEnvironment._usr_sig()
    requeue = signal.signal(number, ask)
    try:
        with StopSignals():
            run_job(config)
    except SystemExit:
        if not asked or not callable(requeue):
            raise
        requeue(number, None)
    finally:
        signal.signal(number, requeue)
