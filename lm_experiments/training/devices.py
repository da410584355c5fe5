"""The device of a run, its precision, and the settings that follow from both."""

from __future__ import annotations

import importlib.util
import math
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from lm_experiments.errors import InputError
from lm_experiments.model import ModelConfig, count
from lm_experiments.training.allocation import keep_freed_memory
from lm_experiments.training.config import RunConfig

# What a micro-batch may keep for its backward pass. Each one reads and writes the gradients of all
# weights, so that few large ones are faster; beyond this nothing more was gained on a CPU.
MICRO_BATCH_BYTES = {"cpu": 256 << 20, "cuda": 16 << 30, "mps": 4 << 30}
# The numbers that a layer keeps of a token for its backward pass, in multiples of d_model (inputs
# of norms and projections, queries, keys, values, the attention's output) and of ffn_width.
KEPT_OF_MODEL, KEPT_OF_FFN = 9, 4
# What compiling takes, and the share of a step's time that it saves. A step on a GPU takes as long
# as its operations, or as starting them, for each block. Round numbers: only their order matters.
COMPILE_SECONDS, COMPILED_SHARE_SAVED = 30.0, 0.25
GPU_FLOPS, BLOCK_SECONDS = 1e14, 1e-3


@dataclass(frozen=True)
class Device:
    """The device of a run.

    Attributes:
        type: cpu, cuda or mps.
        precision: as Lightning names it, ``auto`` resolved.
        compile: whether the model is compiled.
        micro_batch_size: sequences per forward pass of one process.
        strategy: how several devices share the model: ddp or fsdp; single for one.
    """

    type: str
    precision: str
    compile: bool
    micro_batch_size: int
    strategy: str


def find_device(config: RunConfig) -> Device:
    """Choose the device, and what ``auto`` means on it.

    Raises:
        InputError: where the accelerator asked for is not there, or not often enough.
    """
    present = [name for name, there in _present().items() if there]
    asked = config.trainer.accelerator
    device = {"auto": present[0], "gpu": "cuda"}.get(asked, asked)
    if device not in present:
        raise InputError(
            f"trainer.accelerator={asked} is not on this machine, which has "
            f"{', '.join(present)}; type trainer.accelerator={present[0]}."
        )
    _check_count(config.trainer.devices, device)
    precision = _precision(config, device)
    return Device(
        type=device,
        precision=precision,
        compile=config.compile is True or (config.compile == "auto" and _gains(config, device)),
        micro_batch_size=_micro_batch_size(config, device, precision),
        strategy=config.trainer.resolved_strategy,
    )


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Compute with so many CPU threads for a while; None leaves their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare_process(config: RunConfig, device: Device) -> None:
    """Set what is set once per process: CPU threads, memory, tensor cores, determinism."""
    processes = config.trainer.devices
    if config.trainer.threads is not None or processes > 1:
        threads = config.trainer.threads or torch.get_num_threads()
        torch.set_num_threads(max(1, threads // processes))
    if device.type == "cpu":
        keep_freed_memory()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    if config.trainer.deterministic:
        # cuBLAS reads it when its first product is computed.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def peak_memory_bytes(device: Device) -> int:
    """Return the most memory held so far: of the GPU where there is one, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return process_peak_bytes()


def process_peak_bytes() -> int:
    """Return the most memory that this process has held so far."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    # Linux counts in ru_maxrss what the process held that started this program.
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _present() -> dict[str, bool]:
    """Return which devices are there, the best first."""
    return {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }


def _check_count(asked: int, device: str) -> None:
    """Refuse more devices than there are; processes on a CPU are not limited."""
    there = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device, asked)
    if asked > there:
        raise InputError(
            f"trainer.devices={asked} with trainer.accelerator={device} is more than this machine "
            f"has; type trainer.devices={there} or less."
        )


def _gains(config: RunConfig, device: str) -> bool:
    """Return whether compiling saves more time than it takes, by the run's steps and size."""
    if device != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    model, devices = config.model, config.trainer.devices
    flops = count(model).training_flops_per_token * config.tokens_per_step / devices
    step = max(model.n_layers * BLOCK_SECONDS, flops / GPU_FLOPS)
    return COMPILED_SHARE_SAVED * config.trainer.max_steps * step > COMPILE_SECONDS


def _precision(config: RunConfig, device: str) -> str:
    if config.trainer.precision != "auto":
        return config.trainer.precision
    has_bf16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16-mixed" if has_bf16 else "32-true"


def _micro_batch_size(config: RunConfig, device: str, precision: str) -> int:
    share = config.data.batch_size // config.trainer.devices
    if config.trainer.micro_batch_size is not None:
        return min(config.trainer.micro_batch_size, share)
    return best_micro_batch(config.model, share, device, precision)


def best_micro_batch(model: ModelConfig, batch: int, device: str, precision: str) -> int:
    """Return the sequences of a micro-batch: as few micro-batches as may be, of equal size."""
    of_sequence = kept_bytes(model, precision) * model.context_length
    most = max(1, MICRO_BATCH_BYTES[device] // of_sequence)
    return math.ceil(batch / math.ceil(batch / most))


def kept_bytes(model: ModelConfig, precision: str) -> int:
    """Return about how many bytes the blocks keep of each token for the backward pass."""
    width = 2 if precision.startswith("bf16") else 4
    of_layer = KEPT_OF_MODEL * model.d_model + KEPT_OF_FFN * model.width
    return model.n_layers * of_layer * width
