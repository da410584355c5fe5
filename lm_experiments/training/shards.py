"""Checkpoints in shards: a folder with a file of each device that wrote it.

Each file has its device's rows of every sharded tensor; the first has all the rest too.
torch.distributed.checkpoint is not used: it unpickles what it reads, so that a checkpoint of
somebody else could run code, and has no checksums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_map, tree_map_with_path

SUFFIX = ".shards"
ROWS, REST = "rows", "rest"


@dataclass(frozen=True)
class Rows:
    """The rows of a tensor, in parts that lie in files; only what is used is read."""

    parts: tuple[Tensor, ...]

    def between(self, start: int, stop: int) -> Tensor:
        """Return rows ``start`` to ``stop``, in memory of their own."""
        found = []
        for part in self.parts:
            found.append(part[max(start, 0) : max(stop, 0)])
            start, stop = start - len(part), stop - len(part)
        return torch.cat(found)


def names_of(count: int) -> list[str]:
    """Return the names of the files in a folder of that many shards."""
    return [f"shard-{number:05d}-of-{count:05d}.ckpt" for number in range(count)]


def joined(files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the checkpoint whose shards these are, with `Rows` for what was sharded."""

    def _rows(path: Any, leaf: Any) -> Any:
        name = keystr(path)
        return Rows(tuple(each[ROWS][name] for each in files)) if name in files[0][ROWS] else leaf

    checkpoint: dict[str, Any] = tree_map_with_path(_rows, files[0][REST])
    return checkpoint


def whole(tree: Any) -> Any:
    """Return nested values with a tensor for each `Rows`."""
    return tree_map(lambda leaf: torch.cat(leaf.parts) if isinstance(leaf, Rows) else leaf, tree)
