"""Dropout whose mask does not depend on how a batch is cut into micro-batches or over devices.

A mask drawn from a random generator depends on which sequences share a forward pass. Here a hash of
(key of the step, position in the batch, dropout layer, element) decides about each element, so that
micro-batches, several devices and a resumed run all drop the same elements.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The 32-bit finalizer of MurmurHash3 (Appleby 2011), its constants as signed integers.
_FIRST, _SECOND = 0x85EBCA6B - (1 << 32), 0xC2B2AE35 - (1 << 32)
_GOLDEN = 0x9E3779B9 - (1 << 32)


class DropoutKey:
    """What the masks of a forward pass depend on; shared by the dropout layers of a model.

    Attributes:
        values: int32 (2,): the key of the step, and the position in the batch of the first
            sequence. None draws masks from PyTorch's global generator. It is a tensor so that a
            compiled model is not compiled again at every step.
    """

    def __init__(self) -> None:
        self.values: Tensor | None = None

    def set(self, key: int, first: int, device: torch.device) -> None:
        """Set the key of a step, of which the low 32 bits count, and the first position."""
        low = (key & 0xFFFFFFFF) - (1 << 31)
        values = torch.tensor([low, first], dtype=torch.int32)
        self.values = values.to(device, non_blocking=True)


class Dropout(nn.Module):
    """Zeroes elements with probability ``rate`` in training (Srivastava et al. 2014).

    Args:
        rate: the probability.
        layer: the number of this dropout layer within the model.
        key: shared by all dropout layers of the model.
    """

    def __init__(self, rate: float, layer: int, key: DropoutKey) -> None:
        super().__init__()
        self.rate, self.layer, self.key = rate, layer, key

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (batch, length, width), in training with elements zeroed, others scaled."""
        if not self.training or not self.rate:
            return x
        if self.key.values is None:
            return F.dropout(x, self.rate)
        threshold = round(self.rate * (1 << 32)) - (1 << 31)
        kept = _hashes(x.shape, self.layer, self.key.values) >= threshold
        return torch.where(kept, x / (1 - self.rate), 0.0)


def _hashes(shape: torch.Size, layer: int, key: Tensor) -> Tensor:
    """Return an int32 number for each element, uniform over all int32 numbers."""
    inner = torch.arange(math.prod(shape[1:]), dtype=torch.int32, device=key.device)
    outer = torch.arange(shape[0], dtype=torch.int32, device=key.device) + key[1]
    sequences = _mix(_mix(outer + _GOLDEN * layer % (1 << 31)) ^ key[0])[:, None]
    return _mix(_mix(inner ^ sequences) + sequences).view(shape)


def _mix(value: Tensor) -> Tensor:
    # The masks make the arithmetic shifts of signed integers logical ones.
    value = (value ^ ((value >> 16) & 0xFFFF)) * _FIRST
    value = (value ^ ((value >> 13) & 0x7FFFF)) * _SECOND
    return value ^ ((value >> 16) & 0xFFFF)
