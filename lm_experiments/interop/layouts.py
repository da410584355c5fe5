"""How a tensor of theirs holds one or three of ours: as it is, transposed, stacked, or by head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Two inverse functions, exact to the bit.

    Attributes:
        pack: (our tensors, heads) to the tensor of theirs.
        unpack: (their tensor, heads) to ours, which may be views of it.
    """

    pack: Callable[[Sequence[Tensor], int], Tensor]
    unpack: Callable[[Tensor, int], Sequence[Tensor]]


def _pack_by_head(parts: Sequence[Tensor], heads: int) -> Tensor:
    return torch.stack([_split(part, heads) for part in parts], dim=1).flatten(0, 2)


def _unpack_by_head(whole: Tensor, heads: int) -> Sequence[Tensor]:
    return [part.flatten(0, 1) for part in _split(whole, heads).chunk(3, dim=1)]


def _split(rows: Tensor, heads: int) -> Tensor:
    return rows.reshape(heads, -1, *rows.shape[1:])


LAYOUTS = {
    "same": Layout(lambda parts, heads: parts[0], lambda whole, heads: [whole]),
    # GPT-2's layers hold weights of shape (in, out); a bias is its own transpose.
    "transposed": Layout(lambda parts, heads: parts[0].t(), lambda whole, heads: [whole.t()]),
    # All queries, then all keys, then all values, as GPT-2 has them.
    "stacked": Layout(
        lambda parts, heads: torch.cat(list(parts)).t(), lambda whole, heads: whole.t().chunk(3)
    ),
    # The queries, keys and values of the first head, then of the second, as Megatron has them.
    "by_head": Layout(_pack_by_head, _unpack_by_head),
}


def halves_from_pairs(rows: Tensor, head_width: int, turned: int) -> Tensor:
    """Reorder the rows of a query or key projection from interleaved RoPE pairs to halves.

    Column 2k of the ``turned`` columns of a head goes to place k, column 2k + 1 to turned/2 + k:
    where `half` pairing finds them, so that the scores of queries and keys stay what they are.

    Args:
        rows: (heads * head_width, ...), a weight, a bias, or the gain of a norm of these rows.
        head_width: the rows of one head.
        turned: how many of them, from the first on, RoPE turns.
    """
    order = torch.arange(head_width)
    order[:turned] = torch.arange(turned).view(-1, 2).t().flatten()
    heads = _split(rows, len(rows) // head_width)
    return heads[:, order.to(rows.device)].flatten(0, 1)
