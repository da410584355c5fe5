"""How many GPUs and CPUs each run gets, and so how many runs are trained at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.launch.memory import gibibytes
from lm_experiments.rundir.words import counted

AUTO = "auto"
# Four runs on one GPU through MPS end about four times as many runs an hour at 5M parameters, and
# no more than one after another at 124M (bf16, 65,536 tokens a micro-batch), whose kernels fill the
# GPU by themselves. Between the two it is a guess: their geometric mean.
PACKED_PARAMETERS = 25_000_000


@dataclass(frozen=True)
class Resources:
    """``resources`` as typed: GPUs and cores of a run, runs at once; None for auto."""

    gpus: float | None = None
    cpus: float | None = None
    at_once: int | None = None

    @property
    def given(self) -> dict[str, float]:
        """The values that are not auto, by key."""
        values = {f"resources.{key}": value for key, value in vars(self).items()}
        return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True)
class Node:
    """A machine that trains runs.

    Attributes:
        cpus: cores for runs.
        gpus: GPUs for runs.
        memory: bytes of main memory left; None if that is not known.
        gpu_memory: bytes left on the fullest of its GPUs; None if that is not known.
    """

    cpus: float
    gpus: float = 0
    memory: int | None = None
    gpu_memory: int | None = None

    def slots(self, cpus: float, gpus: float) -> int:
        """Return how many runs with these resources fit here at once."""
        limits = [math.floor(self.cpus / cpus + 1e-6)]
        if gpus >= 1:
            limits.append(math.floor(self.gpus / gpus))
        elif gpus:
            limits.append(math.floor(self.gpus) * round(1 / gpus))
        return min(limits)


@dataclass(frozen=True)
class Share:
    """What each run gets.

    Attributes:
        cpus: its cores; fewer than one where several runs share one.
        gpus: its GPUs; a part of one where several runs share it.
        slots: runs trained at once.
        threads: CPU threads of a run.
        text: the share in one sentence, for the plan.
        room: the part of it on memory and on sharing a GPU.
    """

    cpus: float
    gpus: float
    slots: int
    threads: int
    text: str
    room: str = ""


@dataclass(frozen=True)
class Demand:
    """What the largest of the runs needs.

    Attributes:
        devices: its ``trainer.devices``.
        on_cpu: whether the runs were told to use the CPU.
        memory: its bytes, by the estimate.
        parameters: those of the smallest model.
        threads: its CPU threads, where they are settled; None lets the cores decide.
        runs: how many runs there are.
        is_tried: whether one that does not seem to fit is trained all the same, alone.
    """

    devices: int
    on_cpu: bool
    memory: int
    parameters: int = 0
    threads: int | None = None
    runs: float = math.inf
    is_tried: bool = False


def read_resources(values: Mapping[str, Any]) -> Resources:
    """Check ``resources``; InputError for what is not a number, or does not divide a GPU."""
    gpus, cpus, at_once = (
        _number(f"resources.{key}", values[key]) for key in ("gpus", "cpus", "at_once")
    )
    if at_once is not None and (at_once < 1 or at_once != int(at_once)):
        raise InputError(
            f"resources.at_once={at_once:g} must be a whole number of runs; "
            "type resources.at_once=1 for one after another."
        )
    if cpus is not None and cpus <= 0:
        raise InputError(f"resources.cpus={cpus:g} must be more than 0; type resources.cpus=1.")
    if gpus is not None and gpus < 0:
        raise InputError(f"resources.gpus={gpus:g} must be 0 or more.")
    if gpus and gpus > 1 and gpus != int(gpus):
        raise InputError(
            f"resources.gpus={gpus:g} is not a whole number of GPUs; "
            f"type resources.gpus={math.floor(gpus)} or resources.gpus={math.ceil(gpus)}."
        )
    if gpus and gpus < 1 and abs(1 / gpus - round(1 / gpus)) > 0.01:
        fewer, more = 1 / math.ceil(1 / gpus), 1 / math.floor(1 / gpus)
        raise InputError(
            f"resources.gpus={gpus:g} does not divide a GPU; "
            f"type resources.gpus={fewer:.4g} or resources.gpus={more:.4g}."
        )
    return Resources(gpus, cpus, None if at_once is None else int(at_once))


def devices_of(resources: Resources, devices: int) -> int:
    """Return the devices of a run with so many GPUs; InputError if it asks for others."""
    gpus = resources.gpus
    if gpus is None or (gpus <= 1 and devices == 1):
        return devices
    if devices not in (1, gpus):
        raise InputError(
            f"resources.gpus={gpus:g} does not go with trainer.devices={devices}; leave one out."
        )
    return int(gpus)


def check_enough(key: str, gpus: float, nodes: Sequence[Node], where: str) -> None:
    """Raise InputError if no machine has the GPUs that ``key`` asks for."""
    most = max(node.gpus for node in nodes)
    if gpus > most:
        instead = f"type {key}={most:g} or less"
        if not most:
            leave_out = key.startswith("resources")
            instead = f"leave {key} out" if leave_out else "type trainer.accelerator=cpu"
        raise InputError(f"{key}={gpus:g}, but {where} has {most:g} GPUs; {instead}.")


def choose(asked: Resources, nodes: Sequence[Node], where: str, demand: Demand) -> Share:
    """Return what each run gets: the typed values, and the rest from what the machines have.

    ``where`` names the machines in messages, ``demand`` is what the largest run needs.

    Raises:
        InputError: if the machines have less, or too little memory.
    """
    gpus = _gpus(asked, nodes, where, demand)
    if gpus:
        nodes = [node for node in nodes if node.gpus]
    most = max(node.cpus for node in nodes)
    cpus = asked.cpus if asked.cpus is not None else _cpus(asked, nodes, gpus, demand)
    if cpus > most:
        raise InputError(
            f"resources.cpus={cpus:g}, but {where} has {most:g} CPUs; "
            f"type resources.cpus={most:g} or less."
        )
    limit = min(demand.runs, asked.at_once or math.inf)
    by_node = [int(min(node.slots(cpus, gpus), limit)) for node in nodes]
    for node, slots in zip(nodes, by_node, strict=True):
        _check_memory(node, slots, cpus, gpus, where, demand)
    parts = [*([counted(gpus, "GPU")] if gpus else []), counted(cpus, "CPU")]
    text = f"{counted(sum(by_node), 'run')} at once on {where}, each with {' and '.join(parts)}"
    room = _room(nodes, gpus, demand)
    threads = demand.threads or max(1, int(cpus))
    return Share(cpus, gpus, sum(by_node), threads, f"{text}; {room}.", room)


def _number(key: str, value: Any) -> float | None:
    if value == AUTO:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{key}={value} is not a number; type {key}=1, or {key}=auto.")
    return float(value)


def _gpus(asked: Resources, nodes: Sequence[Node], where: str, demand: Demand) -> float:
    most = max(node.gpus for node in nodes)
    if demand.on_cpu:
        if asked.gpus:
            raise InputError(
                f"resources.gpus={asked.gpus:g} does not go with trainer.accelerator=cpu; "
                "leave one out."
            )
        return 0
    if asked.gpus == 0 and most:
        raise InputError(
            "resources.gpus=0 hides the GPUs from the runs; type trainer.accelerator=cpu instead."
        )
    gpus = asked.gpus if asked.gpus is not None else min(most, 1) * demand.devices
    key = "resources.gpus" if asked.gpus is not None else "trainer.devices"
    check_enough(key, gpus, nodes, where)
    return gpus


def _cpus(asked: Resources, nodes: Sequence[Node], gpus: float, demand: Demand) -> float:
    """Return each run's part of the cores: by its GPUs, or by how many fit the memory."""
    if gpus:
        shares = [node.cpus / max(1, node.slots(1e-4, gpus)) for node in nodes]
        return _whole(min(shares))
    busy = max(demand.threads or 1, demand.devices)
    shares = []
    for node in nodes:
        limits = [int(node.cpus) // busy, demand.runs, asked.at_once or math.inf]
        shares.append(node.cpus / max(1, min(*limits, _fitting(node, demand))))
    cpus = _whole(max(shares))
    # A whole number of cores may leave room for more runs than the memory does.
    while any(node.slots(cpus, gpus) > max(1, _fitting(node, demand)) for node in nodes):
        cpus += 1
    return cpus


def _fitting(node: Node, demand: Demand) -> float:
    """Return how many runs the main memory of a machine holds."""
    return math.inf if node.memory is None else node.memory // demand.memory


def _whole(cpus: float) -> float:
    return math.floor(cpus) if cpus >= 1 else math.floor(cpus * 100) / 100


def _check_memory(
    node: Node, slots: int, cpus: float, gpus: float, where: str, demand: Demand
) -> None:
    smaller = f"resources.gpus={min(1, gpus * 2):g}" if gpus else f"resources.cpus={cpus * 2:g}"
    free = node.gpu_memory if gpus else node.memory
    at_once = min(slots, max(1, round(1 / gpus))) if gpus else slots
    if free is None or demand.memory * at_once <= free:
        return
    if at_once == 1:
        if demand.is_tried:
            return
        smaller = "trainer.micro_batch_size=1, or a smaller model"
    raise InputError(
        f"{at_once} runs at once need about {gibibytes(at_once * demand.memory)}, and "
        f"{where} has {gibibytes(free)} left{' on a GPU' if gpus else ''}; type {smaller}."
    )


def _room(nodes: Sequence[Node], gpus: float, demand: Demand) -> str:
    """Return what a run needs of the memory left, and whether runs should share a GPU."""
    known = [node.gpu_memory if gpus else node.memory for node in nodes]
    free = min((size for size in known if size is not None), default=None)
    text = f"one needs about {gibibytes(demand.memory)}"
    if free is not None:
        text += f" of {gibibytes(free)} left{' on each GPU' if gpus else ''}"
    held = min(4, free // demand.memory) if free else 1
    if gpus == 1 and held > 1 and demand.parameters <= PACKED_PARAMETERS:
        return f"{text} (resources.gpus={1 / held:.4g} packs {held} on one)"
    if 0 < gpus < 1 and demand.parameters > PACKED_PARAMETERS:
        return f"{text}; a model of this size fills a GPU, and sharing one gains nothing"
    return text
