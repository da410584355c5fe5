"""Position encodings that bias the scores by the distance between query and key."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm_experiments.model.positions.base import FixedTable, PairBias, PositionSizes
from lm_experiments.registry import NoOptions, register


class ByHead(FixedTable):
    """A bias that follows from the distance and one number for each head; none is learned."""

    def __init__(self, options: NoOptions, sizes: PositionSizes) -> None:
        super().__init__(options, sizes)
        self.n_heads = sizes.n_heads
        self.table = self._build_table()

    def pair_bias(self) -> PairBias:
        """Return `bias` of one head, query and key: the whole table would be heads x length^2."""
        raise NotImplementedError

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the bias of every pair in float32."""
        heads = torch.arange(self.n_heads, device=keys.device)
        return self.pair_bias()(heads[:, None, None], queries[:, None], keys)


@register("position", "alibi")
class ALiBi(ByHead):
    """Subtract from the scores the distance times a slope for each head (Press et al. 2022).

    If the number of heads h is a power of two, the slopes are ``2^(-8i/h)``, i from 1 to h.
    Otherwise they are those of the next lower power of two, then every second one of the next
    higher.
    """

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        return torch.tensor(slopes(self.n_heads), dtype=torch.float32, device=device)

    def pair_bias(self) -> PairBias:
        """Return slope times (negative) distance, at most 0 for earlier keys."""
        slope = self.table
        return lambda head, query, key: slope[head] * (key - query)


@register("position", "hard_alibi")
class HardALiBi(ByHead):
    """Give half of the heads windows of 1, 2, 3, ... positions (Jelassi et al. 2024).

    Such a head attends to that many positions, its own included. The other heads, one more if the
    number is odd, attend to all earlier positions and have no encoding.
    """

    def __init__(self, options: NoOptions, sizes: PositionSizes) -> None:
        if sizes.n_heads < 2:
            raise ValueError(
                "position=hard_alibi gives windows to half of the heads and model.n_heads=1; type "
                "model.n_heads=2 or more, or position=none."
            )
        super().__init__(options, sizes)

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        windowed = self.n_heads // 2
        reach = torch.arange(1, self.n_heads + 1, device=device)
        return reach.masked_fill(reach > windowed, torch.iinfo(reach.dtype).max)

    def pair_bias(self) -> PairBias:
        """Return 0 for keys within the reach of the head, and -inf beyond."""
        reach = self.table
        return lambda head, query, key: torch.where(query - key < reach[head], 0.0, -torch.inf)


def slopes(n_heads: int) -> list[float]:
    """Return the slope of each head."""
    power = 1 << (n_heads.bit_length() - 1)
    extra = [2 ** (-4 * i / power) for i in range(1, 2 * (n_heads - power), 2)]
    return [2 ** (-8 * i / power) for i in range(1, power + 1)] + extra


@dataclass(frozen=True)
class T5Options:
    """Options of T5's bias.

    Attributes:
        buckets: the number of distance buckets: the first half holds one distance each, the others
            grow geometrically.
        max_distance: the distance from which on all are in the last bucket.
    """

    buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        if self.buckets < 2:
            raise ValueError(f"model.position.buckets={self.buckets} must be at least 2.")
        if self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"model.position.max_distance={self.max_distance} must be above half of "
                f"model.position.buckets={self.buckets}; type {self.buckets // 2 + 1} or more."
            )


@register("position", "t5", T5Options)
class T5Bias(FixedTable):
    """Add to the scores a learned bias for each head and distance bucket (Raffel et al. 2020).

    All layers share the biases. As in T5's decoder, all buckets are for earlier positions.
    """

    def __init__(self, options: T5Options, sizes: PositionSizes) -> None:
        super().__init__(options, sizes)
        self.options = options
        self.d_model = sizes.d_model
        self.weight = nn.Parameter(torch.empty(options.buckets, sizes.n_heads))
        self.table = self._build_table()

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        distances = range(self.options.max_distance + 1)
        return torch.tensor([bucket(d, self.options) for d in distances], device=device)

    def reset_parameters(self) -> None:
        """Draw from N(0, 1/d_model) as in T5, with any init scheme."""
        nn.init.normal_(self.weight, std=self.d_model**-0.5)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the learned bias of each distance in float32."""
        distances = queries[:, None] - keys
        buckets = self.table[distances.clamp(0, self.options.max_distance)]
        return F.embedding(buckets, self.weight).float().movedim(-1, 0)


def bucket(distance: int, options: T5Options) -> int:
    """Return the bucket of a distance, 0 or more."""
    exact = options.buckets // 2
    if distance < exact:
        return distance
    share = math.log(distance / exact) / math.log(options.max_distance / exact)
    return min(exact + int(share * (options.buckets - exact)), options.buckets - 1)
