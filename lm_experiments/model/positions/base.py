"""What a position encoding is: hooks with do-nothing defaults, so that each overrides only its own.

Positions are an input: nothing here assumes that a sequence starts at 0, nor that all sequences
of a batch stand at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class PositionSizes:
    """The sizes a position encoding is built from."""

    d_model: int
    n_heads: int
    head_width: int
    context_length: int


class Position(nn.Module):
    """Base of all position encodings, built with (options, sizes); it does nothing itself.

    Wherever a hook takes positions, they have shape (length,), or (batch, length) where the
    sequences of a batch differ.
    """

    def __init__(self, options: Any, sizes: PositionSizes) -> None:
        super().__init__()

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Change the token embeddings ``x`` (batch, length, d_model) at ``positions``."""
        return x

    def phases(self, positions: Tensor) -> Tensor | None:
        """Return what `rotate` needs at ``positions``, computed once for all layers."""
        return None

    def rotate(self, x: Tensor, phases: Tensor | None) -> Tensor:
        """Turn queries or keys ``x`` (batch, heads, length, head_width)."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return what is added to the scores, for the positions of queries and of keys.

        Its shape is (heads, queries, keys), with a batch before it where the positions have one.
        What it holds for keys after the query does not count.
        """
        return None

    @property
    def longest(self) -> int | None:
        """The number of positions that are usable, None where all are."""
        return None

    def extend(self, length: int) -> None:
        """Make positions up to ``length`` usable, where they are beyond the context length.

        Raises:
            ValueError: where they would have to be trained.
        """


class FixedTable(Position):
    """A position encoding that keeps a fixed table, float32 where it is not of whole numbers.

    The table is not a parameter and not in checkpoints. Casting the model to a narrower type
    must not cast it: in bfloat16, position 257 does not exist. So it follows the model's device
    and keeps its type.
    """

    table: Tensor

    def _build_table(self, device: torch.device | None = None) -> Tensor:
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FixedTable:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        moved = fn(self.table.new_empty(0))
        if moved.device != self.table.device:
            self.table = self._build_table(moved.device)
        return self


class PositionTable(FixedTable):
    """A fixed table with a row for each position, which can be computed for more of them.

    Attributes:
        length: the positions the table has; set before it is built.
    """

    length: int

    @property
    def longest(self) -> int:
        """The number of positions in the table."""
        return self.length

    def extend(self, length: int) -> None:
        """Compute the table up to ``length``; what it has of earlier positions stays as it is."""
        if length > self.length:
            self.length = length
            self.table = self._build_table(self.table.device)
