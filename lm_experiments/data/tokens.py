"""Token ids in memory-mapped arrays, of one file or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.unsignedinteger[Any]]


class ShardedTokens:
    """Token arrays of several files that behave like one array of shape (N,)."""

    def __init__(self, parts: Sequence[Tokens]) -> None:
        self._parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, where: slice) -> Tokens:
        """Return a slice with step 1; it is a copy if it spans several files."""
        start, stop, _ = where.indices(len(self))
        found = []
        first = int(np.searchsorted(self._ends, start, side="right"))
        for part, end in zip(self._parts[first:], self._ends[first:], strict=True):
            begin = int(end) - len(part)
            if begin >= stop:
                break
            found.append(part[max(start - begin, 0) : stop - begin])
        return found[0] if len(found) == 1 else np.concatenate(found or [self._parts[0][:0]])
