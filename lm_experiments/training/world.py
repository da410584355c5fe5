"""The processes of a distributed run: rank, world size, and reductions over them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """One process among those of a run, each of which has its own device.

    Host numbers are reduced through gloo whatever the devices are, so that no device is
    synchronised. Every process has to call the same reduction at the same point.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the process that writes files and logs."""
        return self.rank == 0

    def total(self, number: int) -> int:
        """Return the sum of all processes' numbers."""
        return self._reduced(number, dist.ReduceOp.SUM)

    def largest(self, number: int) -> int:
        """Return the largest of all processes' numbers."""
        return self._reduced(number, dist.ReduceOp.MAX)

    def add_up(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place and on its device; return it."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def _reduced(self, number: int, operation: dist.ReduceOp.RedOpType) -> int:
        if self.size == 1:
            return number
        value = torch.tensor(number)
        dist.all_reduce(value, operation, group=_hosts())
        return int(value)


SINGLE_PROCESS = World()


def world_of_environment() -> World:
    """Return rank and world size from torchrun's variables; without them, a single process."""
    return World(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


@cache
def _hosts() -> dist.ProcessGroup | None:
    return None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
