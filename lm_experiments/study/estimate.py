"""What a run will take on this machine, from timed steps of its model."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from lm_experiments.launch.memory import free_memory, run_bytes
from lm_experiments.model import build_model
from lm_experiments.study import checks
from lm_experiments.study.plan import PlannedRun, corpus_of
from lm_experiments.training.batches import evaluated_tokens
from lm_experiments.training.config import RunConfig
from lm_experiments.training.devices import COMPILE_SECONDS, Device, cpu_threads, find_device
from lm_experiments.training.optimizers import clip_gradients

# The first process of a command imports what the others find imported.
FIRST_START_SECONDS = 8.0
# Reading the corpus, building the model, saving, logging: what a run costs beside its steps.
START_SECONDS = {"cpu": 0.3, "cuda": 5.0, "mps": 2.0}
WANDB_SECONDS = 1.5
# What the training loop adds to each step.
LOOP_SECONDS = 0.003
# How often each part of a step is timed in a row, unless that takes longer than the seconds.
TIMED, TIMED_SECONDS = 3, 0.5
# The part of the time to be told that may be spent on timing more than one model.
TIMING_SHARE = 0.02


@dataclass(frozen=True)
class Cost:
    """What a model costs, in seconds of work: of all cores on a CPU, of the device elsewhere.

    Attributes:
        gradient: of the gradients of one token.
        update: of an update of all weights.
        loss: of the loss of one token, without gradients.
        flops: floating-point operations of training on one token.
        worked: seconds of work that were timed.
        waited: seconds that passed meanwhile: more on a busy machine, fewer with several cores.
    """

    gradient: float
    update: float
    loss: float
    flops: int
    worked: float
    waited: float

    def work(self, run: PlannedRun) -> float:
        """Return the work of a run, if it costs as much as this model by its operations."""
        config, scale = run.config, run.ledger.training_flops_per_token / self.flops
        devices = config.trainer.devices if find_device(config).type != "cpu" else 1
        of_tokens = self.gradient * config.tokens + self.loss * _evaluated_tokens(config)
        return scale * (of_tokens / devices + config.trainer.max_steps * self.update)


class Estimates:
    """What runs will take: timed for as many models as is cheap, by their FLOPs for others."""

    def __init__(self) -> None:
        self._costs: dict[str, Cost] = {}

    def time(self, runs: Sequence[PlannedRun]) -> None:
        """Time the models of these runs, the first one in any case.

        One that raises is left out: its run will say why.
        """
        models = {_model_of(run.config): run for run in reversed(runs)}
        times = Counter(_model_of(run.config) for run in runs)
        started = time.perf_counter()
        for name, run in reversed(models.items()):
            spent = time.perf_counter() - started
            told = sum((self.seconds(models[name]) or 0.0) * times[name] for name in models)
            # Code of the user's own could end this process.
            if self._costs and (spent > TIMING_SHARE * told or run.config.code_paths):
                return
            if name not in self._costs and (cost := _timed_or_none(run)):
                self._costs[name] = cost

    @property
    def pace(self) -> float:
        """The seconds that pass for a second of work, 1 where nothing was timed."""
        worked = sum(cost.worked for cost in self._costs.values())
        return sum(cost.waited for cost in self._costs.values()) / worked if worked else 1.0

    def seconds(self, run: PlannedRun) -> float | None:
        """Return what a whole run takes; None where nothing could be timed."""
        if not self._costs:
            return None
        work = (self._costs.get(_model_of(run.config)) or self._nearest(run)).work(run)
        steps = run.config.trainer.max_steps
        return self.pace * work + self._alone(_start_seconds(run.config) + steps * LOOP_SECONDS)

    def _nearest(self, run: PlannedRun) -> Cost:
        """Return the cost of the timed model whose FLOPs are most nearly those of the run's."""
        flops = run.ledger.training_flops_per_token
        return min(self._costs.values(), key=lambda cost: abs(math.log(cost.flops / flops)))

    @property
    def first_start(self) -> float:
        """The seconds that the first run of a command takes beside its own time."""
        return self._alone(FIRST_START_SECONDS)

    def _alone(self, seconds: float) -> float:
        """Return what work of one core takes; threads that wait for each other take longer."""
        return seconds * max(1.0, self.pace / 2)


def _start_seconds(config: RunConfig) -> float:
    device = find_device(config)
    wandb = any(part.name == "wandb" for part in config.logger.parts)
    logging = WANDB_SECONDS if wandb else 0.0
    return START_SECONDS[device.type] + logging + COMPILE_SECONDS * device.compile


def _model_of(config: RunConfig) -> str:
    """Return what runs share whose steps cost the same."""
    trainer = config.trainer
    placed = (trainer.devices, trainer.threads, trainer.micro_batch_size, trainer.precision)
    return repr((config.model, config.optimizer.name, placed, trainer.activation_checkpointing))


def _timed_or_none(run: PlannedRun) -> Cost | None:
    free = free_memory() if find_device(run.config).type == "cpu" else None
    if free is not None and run_bytes(run.config) > free:
        # The kernel would end this process.
        return None
    try:
        return _timed(run)
    except Exception:
        return None


def _timed(run: PlannedRun) -> Cost:
    config, device = run.config, find_device(run.config)
    windows = checks.first_batch(config, device.micro_batch_size)
    inputs, targets = (part.to(device.type) for part in windows)
    model = build_model(config.model, config.seed).to(device.type)
    model.recompute = config.trainer.activation_checkpointing
    optimizer = config.resolved_optimizer.build(model)

    def _gradient() -> None:
        model.loss(inputs, targets, config.model.z_loss).backward()  # type: ignore[no-untyped-call]

    def _update() -> None:
        clip_gradients(model.parameters(), config.optimizer.clip_norm)
        optimizer.step()

    def _loss() -> Tensor:
        with torch.no_grad():
            return model.losses(inputs, targets)[1]

    with cpu_threads(config.trainer.threads), _precision(device):
        parts = [_times(part, device) for part in (_gradient, _update, _loss)]
    gradient, update, loss = (median(work for work, _ in part) for part in parts)
    return Cost(
        gradient / inputs.numel(),
        update,
        loss / inputs.numel(),
        run.ledger.training_flops_per_token,
        worked=sum(work for part in parts for work, _ in part),
        waited=sum(passed for part in parts for _, passed in part),
    )


def _precision(device: Device) -> torch.autocast | nullcontext[None]:
    if not device.precision.startswith("bf16"):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def _times(action: Callable[[], object], device: Device) -> list[tuple[float, float]]:
    """Return the work of an action and the seconds it took, each time after a first time.

    On a CPU that others use too, the processor's time tells models apart, and not the clock's.
    """
    found: list[tuple[float, float]] = []
    while len(found) <= TIMED and (len(found) < 2 or sum(t for _, t in found) < TIMED_SECONDS):
        worked, start = time.process_time(), time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize()
        passed = time.perf_counter() - start
        found.append((time.process_time() - worked if device.type == "cpu" else passed, passed))
    return found[1:]


def _evaluated_tokens(config: RunConfig) -> int:
    """Return over how many tokens a run computes losses without gradients."""
    point, last = evaluated_tokens(config, corpus_of(config))
    return math.ceil(config.trainer.max_steps / config.trainer.val_every) * point + last
