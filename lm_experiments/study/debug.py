"""``debug=``: a look at one run before it is trained; nothing of it is ever taken for a result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from lm_experiments.errors import InputError
from lm_experiments.rundir.words import counted
from lm_experiments.study.command_config import ONE_STEP, OVERFIT, PROFILE
from lm_experiments.study.plain_training import PlainTraining
from lm_experiments.study.plan import PlannedRun
from lm_experiments.training.config import RunConfig
from lm_experiments.training.devices import find_device

# One batch is learned by heart below this loss in nats per token, within so many steps.
LEARNED, MOST_STEPS = 0.1, 300
# Steps before the trace, which allocate and choose kernels, and in it.
WARM_UP, TRACED = 2, 3
# Beside the sweeps in runs_dir; it has no sweep.json, so that no table is made of it.
FOLDER, TRACE = "debug", "trace.json"


def debug(mode: str, run: PlannedRun) -> int:
    """Look at a run in one of the modes, and print what was found; return the exit status.

    Everything is in float32, at the peak of the learning rate, without compiled code.

    Raises:
        InputError: for a run on several devices.
    """
    if run.config.trainer.devices > 1:
        raise InputError(
            f"debug={mode} is for one device and trainer.devices={run.config.trainer.devices}; "
            "type trainer.devices=1."
        )
    print(f"debug={mode}: nothing is kept as a result.")
    return MODES[mode](run.config, Path(run.config.runs_dir) / FOLDER / run.directory.name)


def overfit(config: RunConfig, folder: Path) -> int:
    """Learn the first batch by heart; the exit status is 1 where that does not succeed."""
    training = PlainTraining(config, find_device(config).type)
    inputs, targets = training.batch(0)
    losses: list[float] = []
    while len(losses) <= MOST_STEPS and (not losses or LEARNED <= losses[-1] < math.inf):
        losses.append(training.backward(inputs, targets).item())
        training.update()
        if len(losses) % 20 == 1:
            print(f"step {len(losses) - 1:4}  loss {losses[-1]:.4f}", flush=True)
    told = f"from {losses[0]:.4f} to {losses[-1]:.4f} in {counted(len(losses) - 1, 'step')}"
    if losses[-1] < LEARNED:
        print(f"yes: the batch was learned by heart, {told}.")
        return 0
    print(
        f"no: the batch was not learned by heart, {told}; that takes a loss below {LEARNED:g}. "
        "Try another optimizer.lr, model.dropout=0, or look for a gradient that does not arrive."
    )
    return 1


def one_step(config: RunConfig, folder: Path) -> int:
    """Make one step, and say what it did; the exit status is 1 where it is not finite."""
    training = PlainTraining(config, find_device(config).type)
    inputs, targets = training.batch(0)
    start = time.perf_counter()
    loss = training.backward(inputs, targets).item()
    norm = training.update().item()
    seconds = time.perf_counter() - start
    again = training.backward(inputs, targets).item()
    missing = [name for name, p in training.model.named_parameters() if p.grad is None]
    print(
        f"loss {loss:.4f}, gradient norm {norm:.4f}, {seconds:.2f} s for "
        f"{targets.numel():,} tokens; the same batch after the step: loss {again:.4f}"
    )
    for name in missing:
        print(f"no gradient: {name}")
    return 0 if all(map(math.isfinite, (loss, norm, again))) and not missing else 1


def profile(config: RunConfig, folder: Path) -> int:
    """Trace some steps with PyTorch's profiler, for chrome://tracing or ui.perfetto.dev."""
    training = PlainTraining(config, find_device(config).type)
    for number in range(WARM_UP):
        _step(training, number)
    with torch.profiler.profile() as profiler:
        for number in range(WARM_UP, WARM_UP + TRACED):
            with torch.profiler.record_function(f"step {number}"):
                _step(training, number)
    folder.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(folder / TRACE))
    order = "self_cuda_time_total" if training.device == "cuda" else "self_cpu_time_total"
    print(profiler.key_averages().table(sort_by=order, row_limit=12, max_name_column_width=40))
    print(f"Wrote {folder / TRACE}; open it in chrome://tracing or https://ui.perfetto.dev")
    return 0


def _step(training: PlainTraining, number: int) -> None:
    training.backward(*training.batch(number))
    training.update()


MODES: Mapping[str, Callable[[RunConfig, Path], int]] = {
    OVERFIT: overfit,
    ONE_STEP: one_step,
    PROFILE: profile,
}
