"""Position encodings that are added to the token embeddings, and no encoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lm_experiments.model.positions.base import Position, PositionSizes, PositionTable
from lm_experiments.model.positions.scaling import angles, geometric
from lm_experiments.registry import NoOptions, register


@register("position", "none")
class NoPosition(Position):
    """No position encoding: the causal mask alone conveys order (Haviv et al. 2022)."""


@register("position", "sinusoidal")
class Sinusoidal(PositionTable):
    """Add fixed sines and cosines of geometric wavelengths to embeddings (Vaswani et al. 2017).

    Column 2i is ``sin(p / 10000^(2i/d))``, column 2i+1 its cosine; an odd width drops the last.
    """

    THETA = 10000.0

    def __init__(self, options: NoOptions, sizes: PositionSizes) -> None:
        super().__init__(options, sizes)
        self.length, self.width = sizes.context_length, sizes.d_model
        self.table = self._build_table()

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        radians = angles(self.length, geometric((self.width + 1) // 2, self.width, self.THETA))
        waves = torch.stack((radians.sin(), radians.cos()), dim=-1)
        return waves.flatten(1)[:, : self.width].float().to(device)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the rows of the table at ``positions``."""
        return x + self.table[positions].to(x.dtype)


@register("position", "learned")
class Learned(Position):
    """Add a learned vector for each position up to the context length (Radford et al. 2018)."""

    def __init__(self, options: NoOptions, sizes: PositionSizes) -> None:
        super().__init__(options, sizes)
        self.weight = nn.Parameter(torch.empty(sizes.context_length, sizes.d_model))

    def reset_parameters(self) -> None:
        """Draw from N(0, 0.02) as in GPT-2, with any init scheme."""
        nn.init.normal_(self.weight, std=0.02)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the learned vectors at ``positions``."""
        return x + self.weight[positions].to(x.dtype)

    @property
    def longest(self) -> int:
        """The number of learned vectors."""
        return len(self.weight)

    def extend(self, length: int) -> None:
        """Raise a ValueError for a ``length`` beyond the learned vectors."""
        if length > len(self.weight):
            raise ValueError(
                f"position=learned has a vector for each of {len(self.weight)} positions, too few "
                f"for a context of {length}; choose at most {len(self.weight)}, or a run with "
                "another position."
            )
