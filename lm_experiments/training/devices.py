"""What a run trains on: the device, its precision, and the settings that follow from both."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass

import torch

from .config import RunConfig
from .typed import ConfigError

# Tokens in one forward pass. On a CPU, activations that fit the cache beat a larger batch.
MICRO_BATCH_TOKENS = {"cpu": 1024, "cuda": 65536, "mps": 16384}


@dataclass(frozen=True)
class Device:
    """The device of a run.

    Attributes:
        type: cpu, cuda or mps.
        precision: as Lightning names it, ``auto`` resolved.
        compile: whether the model is compiled.
        micro_batch_size: sequences per forward pass.
    """

    type: str
    precision: str
    compile: bool
    micro_batch_size: int


def find_device(config: RunConfig) -> Device:
    """Choose the device, and what ``auto`` means on it.

    Raises:
        ConfigError: where the accelerator asked for is not there.
    """
    present = [name for name, there in _present().items() if there]
    asked = config.trainer.accelerator
    device = present[0] if asked == "auto" else asked
    if device not in present:
        raise ConfigError(
            f"trainer.accelerator={device} is not on this machine, which has "
            f"{', '.join(present)}; type trainer.accelerator={present[0]}."
        )
    return Device(
        type=device,
        precision=_precision(config, device),
        compile=config.compile is True or (config.compile == "auto" and device == "cuda"),
        micro_batch_size=_micro_batch_size(config, device),
    )


def prepare_process(config: RunConfig, device: Device) -> None:
    """Set what is set once per process: CPU threads, and float32 products on tensor cores."""
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")


def peak_memory_bytes(device: Device) -> int:
    """Return the most memory held so far: of the GPU where there is one, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _present() -> dict[str, bool]:
    """Return which devices are there, the best first."""
    return {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }


def _precision(config: RunConfig, device: str) -> str:
    if config.trainer.precision != "auto":
        return config.trainer.precision
    has_bf16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16-mixed" if has_bf16 else "32-true"


def _micro_batch_size(config: RunConfig, device: str) -> int:
    if config.trainer.micro_batch_size is not None:
        return min(config.trainer.micro_batch_size, config.data.batch_size)
    tokens = MICRO_BATCH_TOKENS[device]
    return max(1, min(config.data.batch_size, tokens // config.model.context_length))
