"""How much memory a run takes, estimated from its ledger, and how much there is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import torch

from lm_experiments.model import count
from lm_experiments.training.config import RunConfig
from lm_experiments.training.devices import find_device, kept_bytes

GIB = 1 << 30
# Float32 weights, gradients, and the two moments of the optimizer.
BYTES_PER_PARAMETER = 16
# A process with its libraries; on a GPU, its context there.
PROCESS_BYTES = {"cpu": 400 << 20, "cuda": 500 << 20, "mps": 400 << 20}


def run_bytes(config: RunConfig) -> int:
    """Estimate the bytes that a run takes, of the GPU if it has one, else of main memory.

    The estimate is low: a run that does not fit by it does not fit.
    """
    device, model = find_device(config), config.model
    state = BYTES_PER_PARAMETER * count(model).parameters
    tokens = device.micro_batch_size * model.context_length
    kept = kept_bytes(model, device.precision)
    if config.trainer.activation_checkpointing:
        # The input of each block, which is float32, and the activations of one block at a time.
        kept = 4 * model.n_layers * model.d_model + kept // model.n_layers
    return PROCESS_BYTES[device.type] + state + tokens * kept


def gibibytes(size: float) -> str:
    """Return a size in GiB."""
    return f"{size / GIB:,.1f} GiB"


def free_memory() -> int | None:
    """Return the bytes of main memory that this machine, or this container, has left."""
    return min(
        (size for size in (_of_machine(), _of_container()) if size is not None), default=None
    )


def free_gpu_memory() -> int | None:
    """Return the free bytes of the fullest visible GPU, None if that is not known.

    torch would take memory of each GPU for the answer, and keep it as long as this process runs.
    """
    if not torch.cuda.device_count():
        return None
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    asked = [f"--id={mask}"] if mask else []
    command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", *asked]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        return min(int(line) << 20 for line in done.stdout.split("\n") if line)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def cores() -> int:
    """Return the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    values = {line.split(":")[0]: line.split()[1] for line in lines if ":" in line}
    return int(values["MemAvailable"]) * 1024 if "MemAvailable" in values else None


def _of_container() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text(encoding="utf-8").strip()
        used = (folder / "memory.current").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))
