"""Positions and document ids of the tokens of a forward pass, and of the keys they attend to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lm_experiments.model.cache import Cache


@dataclass(frozen=True)
class Location:
    """Positions and documents of the queries and keys of one forward pass.

    The queries are the tokens of this pass. The keys are the cached tokens and the queries.

    Attributes:
        offset: the number of cached tokens.
        positions: for the position encoding, (length,) or (batch, length); they restart at 0 in
            each document.
        query_positions: for distances, as `positions`, but they do not restart.
        key_positions: the same for the keys.
        query_documents: the document of each query (batch, length), None for a single document.
        key_documents: the same for the keys.
    """

    offset: int
    positions: Tensor
    query_positions: Tensor
    key_positions: Tensor
    query_documents: Tensor | None = None
    key_documents: Tensor | None = None

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self.query_positions.shape[-1]

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self.key_positions.shape[-1]


def locate(
    tokens: Tensor,
    positions: Tensor | None = None,
    documents: Tensor | None = None,
    cache: Cache | None = None,
    end_of_text: int | None = None,
) -> Location:
    """Return the positions and documents of ``tokens`` (batch, length), and update the cache.

    Args:
        tokens: the next tokens of each sequence.
        positions: (length,) or (batch, length); by default they count from the start of each
            document, including cached tokens.
        documents: document ids (batch, length); each document is contiguous.
        cache: the tokens read so far.
        end_of_text: the token that ends a document, if documents are to be separated at it.

    Raises:
        ValueError: if the cache is full, or if only some calls give documents.
    """
    if cache is not None:
        cache.check(tokens)
    offset = 0 if cache is None else cache.length
    if end_of_text is not None:
        ended = tokens.new_zeros(len(tokens)) if cache is None else cache.ended
        ends = tokens == end_of_text
        # The number of documents that ended before each token.
        numbers = ended[:, None] + ends.cumsum(1) - ends.long()
        # Combine both ids; no sequence has 2^32 documents.
        documents = numbers if documents is None else documents.long() * (1 << 32) + numbers
    index = torch.arange(offset, offset + tokens.shape[1], device=tokens.device)
    query_positions = index if positions is None else positions
    key_positions, key_documents = query_positions, documents
    if cache is not None:
        key_positions, key_documents = _append(cache, query_positions, documents)
        if end_of_text is not None:
            cache.ended = cache.ended + (tokens == end_of_text).sum(1)
        cache.length += tokens.shape[1]
    if positions is None:
        positions = index
        if key_documents is not None:
            positions = restarted(key_documents)[:, offset:]
    return Location(offset, positions, query_positions, key_positions, documents, key_documents)


def restarted(documents: Tensor) -> Tensor:
    """Return positions (batch, length) that restart at 0 where the document id changes."""
    index = torch.arange(documents.shape[1], device=documents.device)
    changes = documents[:, 1:] != documents[:, :-1]
    starts = torch.nn.functional.pad(changes, (1, 0)) * index
    return index - starts.cummax(1).values


def _append(
    cache: Cache, positions: Tensor, documents: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Append to the cache; return the positions and documents of all its tokens."""
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
        cached = documents[:, :0] if cache.documents is None else cache.documents
        cache.documents = torch.cat([cached, documents], 1)
    return cache.positions, cache.documents
