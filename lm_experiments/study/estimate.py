"""What a run will take on this machine, from timed steps of its model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from lm_experiments.model import build_model
from lm_experiments.study import checks
from lm_experiments.study.plan import PlannedRun, corpus_of
from lm_experiments.training.config import RunConfig
from lm_experiments.training.devices import Device, cpu_threads, find_device
from lm_experiments.training.optimizers import clip_gradients

# The first process of a command imports what the others find imported.
FIRST_START_SECONDS = 8.0
# Reading the corpus, building the model, saving, logging: what a run costs beside its steps.
START_SECONDS = {"cpu": 0.5, "cuda": 5.0, "mps": 2.0}
WANDB_SECONDS = 1.5
COMPILE_SECONDS = 30.0
# What the training loop adds to each step.
LOOP_SECONDS = 0.003
# How often each part of a step is timed in a row, unless that takes longer than the seconds.
TIMED, TIMED_SECONDS = 3, 0.5
# How often each model is timed, in turn, within this part of the time that is to be told.
ROUNDS, TIMING_SHARE = 3, 0.02


@dataclass(frozen=True)
class Cost:
    """What a model costs, as timed some times.

    Attributes:
        gradients: seconds of the gradients of ``tokens`` tokens, each time.
        updates: seconds of an update of all weights.
        losses: seconds of the losses of ``tokens`` tokens, without gradients.
        flops: floating-point operations of training on one token.
    """

    gradients: list[float]
    updates: list[float]
    losses: list[float]
    tokens: int
    flops: int

    @property
    def times(self) -> list[list[float]]:
        """The times of each part."""
        return [self.gradients, self.updates, self.losses]

    def add(self, other: Cost) -> None:
        """Add the times of another turn."""
        for times, more in zip(self.times, other.times, strict=True):
            times += more

    def seconds(self, run: PlannedRun) -> float:
        """Return what a run takes whose model costs as much in relation to its operations."""
        config, scale = run.config, run.ledger.training_flops_per_token / self.flops
        steps = config.trainer.max_steps
        gradient, update, loss = map(min, self.times)
        of_tokens = gradient * config.tokens + loss * _evaluated_tokens(config)
        devices = config.trainer.devices if find_device(config).type != "cpu" else 1
        return (
            _start_seconds(config)
            + scale * (of_tokens / self.tokens / devices + steps * update)
            + steps * LOOP_SECONDS
        )


class Estimates:
    """What runs will take: timed for as many models as is cheap, by their FLOPs for others."""

    def __init__(self) -> None:
        self._costs: dict[str, Cost] = {}

    def time(self, runs: Sequence[PlannedRun]) -> None:
        """Time the models of these runs, in turns, the first one in any case.

        One that raises is left out: its run will say why.
        """
        models = {_model_of(run.config): run for run in reversed(runs)}
        turns = list(reversed(models.items())) * ROUNDS
        started = time.perf_counter()
        for name, run in turns:
            spent = time.perf_counter() - started
            told = sum(self.seconds(other) or 0.0 for other in runs)
            # Code of the user's own could end this process.
            if self._costs and (spent > TIMING_SHARE * told or run.config.code_paths):
                return
            if (cost := _timed_or_none(run)) and cost is not self._costs.setdefault(name, cost):
                self._costs[name].add(cost)

    @property
    def busy(self) -> float:
        """How much longer than the quickest of their kind the timed parts took, 1 without any."""
        times = [part for cost in self._costs.values() for part in cost.times]
        best = sum(len(part) * min(part) for part in times)
        return sum(map(sum, times)) / best if best else 1.0

    def seconds(self, run: PlannedRun) -> float | None:
        """Return what a whole run takes; None where nothing could be timed."""
        flops = run.ledger.training_flops_per_token
        others = sorted(self._costs.values(), key=lambda cost: abs(math.log(cost.flops / flops)))
        if not others:
            return None
        # The quickest times tell models apart; how busy the machine is shows in all of them.
        return self.busy * self._costs.get(_model_of(run.config), others[0]).seconds(run)

    @property
    def first_start(self) -> float:
        """The seconds that the first run of a command takes beside its own time."""
        return FIRST_START_SECONDS * self.busy


def _start_seconds(config: RunConfig) -> float:
    device = find_device(config)
    logging = WANDB_SECONDS if config.logger.name == "wandb" else 0.0
    return START_SECONDS[device.type] + logging + COMPILE_SECONDS * device.compile


def _model_of(config: RunConfig) -> str:
    """Return what runs share whose steps cost the same."""
    trainer = config.trainer
    placed = (trainer.devices, trainer.threads, trainer.micro_batch_size, trainer.precision)
    return repr((config.model, config.optimizer.name, placed))


def _timed_or_none(run: PlannedRun) -> Cost | None:
    try:
        return _timed(run)
    except Exception:
        return None


def _timed(run: PlannedRun) -> Cost:
    config, device = run.config, find_device(run.config)
    windows = checks.first_batch(config, device.micro_batch_size)
    inputs, targets = (part.to(device.type) for part in windows)
    model = build_model(config.model, config.seed).to(device.type)
    optimizer = config.optimizer.build(model)

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
    gradients, updates, losses = parts
    flops = run.ledger.training_flops_per_token
    return Cost(gradients, updates, losses, inputs.numel(), flops)


def _precision(device: Device) -> torch.autocast | nullcontext[None]:
    if not device.precision.startswith("bf16"):
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def _times(action: Callable[[], object], device: Device) -> list[float]:
    """Return the seconds of an action each time it is done, after a first time."""
    taken: list[float] = []
    while len(taken) <= TIMED and (len(taken) < 2 or sum(taken) < TIMED_SECONDS):
        start = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return taken[1:]


def _evaluated_tokens(config: RunConfig) -> int:
    """Return over how many tokens a run computes losses without gradients."""
    corpus, trainer = corpus_of(config), config.trainer
    passes = math.ceil(trainer.max_steps / trainer.val_every)
    test = len(corpus.test.tokens) if corpus.test else 0
    return passes * len(corpus.val.tokens) + test
