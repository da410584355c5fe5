"""How much of what its device could do a run did."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from lm_experiments.rundir.results import Result

# By the name of a GPU: FLOP/s of dense matrix products in bfloat16, and in float32, which runs as
# TF32 here (see `devices.prepare_process`). From NVIDIA's data sheets, whose figures with sparsity
# are halved. The first name that occurs counts.
PEAKS: Mapping[str, tuple[float, float]] = {
    "B200": (2250e12, 1125e12),  # HGX B200
    "H200": (989.4e12, 494.7e12),  # H200 SXM
    "H100 PCIe": (756.5e12, 378e12),  # H100 PCIe
    "H100 NVL": (835.5e12, 417.5e12),  # H100 NVL
    "H100": (989.4e12, 494.7e12),  # H100 SXM
    "A100": (312e12, 156e12),  # A100, both forms
    "L40S": (362e12, 183e12),  # L40S
    "L4": (121e12, 60e12),  # L4
    "A10": (125e12, 62.5e12),  # A10
    "RTX 4090": (165.2e12, 82.6e12),  # Ada architecture whitepaper, appendix A
}


def utilization(result: Result) -> float | None:
    """Return the share of its devices' peak that a run's training reached (MFU, PaLM 2022).

    None where the peak is not known, as on a CPU, or nothing was measured.
    """
    if result.device != "cuda" or result.tokens_per_second is None or not result.flops_per_token:
        return None
    peak = peak_flops(torch.cuda.get_device_name(), result.precision or "")
    if peak is None:
        return None
    return result.tokens_per_second * result.flops_per_token / (peak * (result.world_size or 1))


def peak_flops(device: str, precision: str) -> float | None:
    """Return the peak in FLOP/s of a GPU by its name, None where it is not known."""
    names = (name for name in PEAKS if re.search(rf"\b{name}\b", device))
    bf16, fp32 = PEAKS.get(next(names, ""), (None, None))
    return bf16 if precision.startswith("bf16") else fp32
