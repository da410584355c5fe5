"""PyTorch's attention kernels: which are there, how fast they are, and whether they repeat."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lm_experiments.benchmark.rounds import Contestant, Measurement, device, measure, timed
from lm_experiments.errors import InputError

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "plain": SDPBackend.MATH,
}
# Batch, heads, length, head width.
SHAPES = {"cpu": (4, 4, 256, 32), "cuda": (16, 12, 1024, 64)}


def attention(rounds: int) -> Measurement:
    """Time causal attention, forward and backward, with each kernel that works here."""
    return compare(SHAPES[device().type], rounds)


def compare(shape: tuple[int, int, int, int], rounds: int) -> Measurement:
    """Time each kernel at one shape; see `attention`."""
    dtype = torch.bfloat16 if device().type == "cuda" else torch.float32
    parts = [torch.randn(shape, device=device(), dtype=dtype, requires_grad=True) for _ in "qkv"]
    contestants: dict[str, Contestant] = {}
    notes = []
    for name, kernel in KERNELS.items():
        work = partial(_gradients, parts, kernel)
        try:
            same = all(map(torch.equal, work(), work()))
        except RuntimeError as error:
            notes.append(f"{name}: not here ({str(error).splitlines()[0]})")
            continue
        contestants[name] = timed(work)
        notes.append(f"{name}: two passes have {'the same' if same else 'other'} bits")
    if not contestants:
        raise InputError(f"no attention kernel works here: {'; '.join(notes)}.")
    title = f"Causal attention {' x '.join(map(str, shape))}, {dtype}, forward and backward."
    return Measurement(title, measure(contestants, rounds), rounds, shape[0] * shape[2], notes)


def _gradients(parts: list[Tensor], kernel: SDPBackend) -> tuple[Tensor, ...]:
    with sdpa_kernel([kernel]):
        query, key, value = parts
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return out, *torch.autograd.grad(out.float().square().sum(), parts)
