"""Where tokens stand: their positions, their documents, and those of the keys they may read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lm_experiments.model.cache import Cache


@dataclass(frozen=True)
class Location:
    """Where the tokens of one forward pass stand among all that were read so far.

    Attributes:
        offset: tokens that a cache holds before them.
        positions: what position encodings are computed at, (length,) or (batch, length).
        query_positions: what distances are computed from, for biases of the scores: as
            ``positions``, save that they do not start again in each document.
        key_positions: the same for the tokens of the cache and these.
        query_documents: the document of each token (batch, length), or None for one for all.
        key_documents: the same for the tokens of the cache and these.
    """

    offset: int
    positions: Tensor
    query_positions: Tensor
    key_positions: Tensor
    query_documents: Tensor | None = None
    key_documents: Tensor | None = None

    @property
    def queries(self) -> int:
        """The number of tokens of this pass."""
        return self.query_positions.shape[-1]

    @property
    def keys(self) -> int:
        """The number of tokens that can be read: those of the cache, and these."""
        return self.key_positions.shape[-1]


def locate(
    tokens: Tensor,
    positions: Tensor | None = None,
    documents: Tensor | None = None,
    cache: Cache | None = None,
    end_of_text: int | None = None,
) -> Location:
    """Say where ``tokens`` (batch, length) stand; a cache takes note of it.

    Args:
        tokens: the next part of each sequence.
        positions: (length,) or (batch, length); where not given they count up from the start of
            each document, and those of the cache count.
        documents: ids (batch, length) of what is kept apart; an id does not come back later.
        cache: what was read before.
        end_of_text: the token that ends a document, where documents are kept apart by it.

    Raises:
        ValueError: for tokens that the cache has no room for, or documents that it knows nothing
            of.
    """
    if cache is not None:
        cache.check(tokens)
    offset = 0 if cache is None else cache.length
    if end_of_text is not None:
        ended = tokens.new_zeros(len(tokens)) if cache is None else cache.ended
        documents = _told_apart(tokens == end_of_text, ended, documents)
    index = torch.arange(offset, offset + tokens.shape[1], device=tokens.device)
    counted = index if positions is None else positions
    keys, key_documents = counted, documents
    if cache is not None:
        keys, key_documents = _note(cache, counted, documents)
        if end_of_text is not None:
            cache.ended = cache.ended + (tokens == end_of_text).sum(1)
        cache.length += tokens.shape[1]
    if positions is None:
        positions = index
        if key_documents is not None:
            positions = restarted(key_documents)[:, offset:]
    return Location(offset, positions, counted, keys, documents, key_documents)


def restarted(documents: Tensor) -> Tensor:
    """Return positions (batch, length) that start at 0 wherever the document id changes."""
    index = torch.arange(documents.shape[1], device=documents.device)
    changes = documents[:, 1:] != documents[:, :-1]
    starts = torch.nn.functional.pad(changes, (1, 0)) * index
    return index - starts.cummax(1).values


def _told_apart(ends: Tensor, ended: Tensor, documents: Tensor | None) -> Tensor:
    """Number documents (batch, length) by the ends before each token; keep given ones apart too."""
    numbers: Tensor = ended[:, None] + ends.cumsum(1) - ends.long()
    if documents is None:
        return numbers
    # Both ids in one; no sequence has 2^32 documents.
    return documents.long() * (1 << 32) + numbers


def _note(
    cache: Cache, positions: Tensor, documents: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Add what is new to the cache; return the positions and documents of all it holds."""
    if cache.length and (documents is None) != (cache.documents is None):
        raise ValueError(
            "Documents must be given with every part of a cached sequence, or with none; start "
            "again with a new cache."
        )
    before = cache.positions
    if positions.dim() > before.dim():
        before = before.expand(len(positions), -1)
    elif before.dim() > positions.dim():
        positions = positions.expand(len(before), -1)
    cache.positions = torch.cat([before, positions], -1)
    if documents is not None:
        kept = documents[:, :0] if cache.documents is None else cache.documents
        cache.documents = torch.cat([kept, documents], 1)
    return cache.positions, cache.documents
