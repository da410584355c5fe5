"""How a Hugging Face tensor holds one or three of ours: same, transposed, stacked, by head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Two functions that are exact inverses of each other.

    Attributes:
        pack: (our tensors, heads) to the Hugging Face tensor.
        unpack: (Hugging Face tensor, heads) to our tensors, which may be views.
    """

    pack: Callable[[Sequence[Tensor], int], Tensor]
    unpack: Callable[[Tensor, int], Sequence[Tensor]]


def _split(rows: Tensor, heads: int) -> Tensor:
    return rows.reshape(heads, -1, *rows.shape[1:])


SAME = Layout(lambda parts, heads: parts[0], lambda whole, heads: [whole])
# GPT-2's Conv1D weights have shape (in, out); a bias is its own transpose.
TRANSPOSED = Layout(lambda parts, heads: parts[0].t(), lambda whole, heads: [whole.t()])
# All queries, then all keys, then all values (GPT-2).
STACKED = Layout(
    lambda parts, heads: torch.cat(list(parts)).t(), lambda whole, heads: whole.t().chunk(3)
)
# Query, key and value of the first head, then of the second, and so on (Megatron).
BY_HEAD = Layout(
    lambda parts, heads: torch.stack([_split(p, heads) for p in parts], dim=1).flatten(0, 2),
    lambda whole, heads: [p.flatten(0, 1) for p in _split(whole, heads).chunk(3, dim=1)],
)


def halves_from_pairs(rows: Tensor, head_width: int, rotated: int) -> Tensor:
    """Reorder the rows of a query or key projection from `interleaved` to `half` RoPE pairing.

    Of the first ``rotated`` rows of a head, row 2k moves to k and row 2k + 1 to rotated/2 + k. The
    scores do not change.

    Args:
        rows: (heads * head_width, ...), a weight, a bias, or the gain of a QK norm.
        head_width: the number of rows of one head.
        rotated: how many of them RoPE rotates, from the first on.
    """
    order = torch.arange(head_width)
    order[:rotated] = torch.arange(rotated).view(-1, 2).t().flatten()
    heads = _split(rows, len(rows) // head_width)
    return heads[:, order.to(rows.device)].flatten(0, 1)
