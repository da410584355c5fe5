"""Base classes of position encodings: hooks that do nothing by default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

PairBias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps (head, query, key), as integer tensors, to what is added to their score."""


@dataclass(frozen=True)
class PositionSizes:
    """The sizes of a model that its parts are built from."""

    d_model: int
    n_heads: int
    head_width: int
    context_length: int


class Position(nn.Module):
    """Base class of position encodings, built with (options, sizes); does nothing itself.

    Positions have shape (length,), or (batch, length) where documents restart them.
    """

    def __init__(self, options: Any, sizes: PositionSizes) -> None:
        super().__init__()

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Encode ``positions`` in the token embeddings ``x`` (batch, length, d_model)."""
        return x

    def phases(self, positions: Tensor) -> Tensor | None:
        """Return the input of `rotate` for ``positions``, computed once for all layers."""
        return None

    def rotate(self, x: Tensor, phases: Tensor | None) -> Tensor:
        """Rotate queries or keys ``x`` (batch, heads, length, head_width)."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return the bias of the scores (heads, queries, keys) for positions (length,) each.

        Keys after the query are masked later.
        """
        return None

    def pair_bias(self) -> PairBias | None:
        """Return `bias` as a function of one pair, where nothing is learned; None to use `bias`."""
        return None

    @property
    def longest(self) -> int | None:
        """The number of supported positions, None for no limit."""
        return None

    def extend(self, length: int) -> None:
        """Support positions up to ``length``, beyond the context length.

        Raises:
            ValueError: if they would have to be trained.
        """


class FixedTable(Position):
    """A position encoding with a fixed table, in float32 or integers.

    The table is not a parameter and not in checkpoints. It follows the model's device but keeps
    its dtype when the model is cast: bfloat16 cannot represent position 257.
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
    """A fixed table with a row for each position, which can be extended.

    Attributes:
        length: the number of positions of the table; set before it is built.
    """

    length: int

    @property
    def longest(self) -> int:
        """The number of positions in the table."""
        return self.length

    def extend(self, length: int) -> None:
        """Extend the table to ``length`` positions; the rows it has do not change."""
        if length > self.length:
            self.length = length
            self.table = self._build_table(self.table.device)
