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
        positions: for the position encoding, (length,), or (batch, length) with documents, in each
            of which they restart at 0.
        query_positions: for distances, (length,); they do not restart.
        key_positions: the same for the keys, counted from 0.
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
        return len(self.query_positions)

    @property
    def keys(self) -> int:
        """The number of keys."""
        return len(self.key_positions)


def locate(
    tokens: Tensor,
    documents: Tensor | None = None,
    cache: Cache | None = None,
    end_of_text: int | None = None,
) -> Location:
    """Return the positions and documents of ``tokens`` (batch, length), and update the cache.

    Args:
        tokens: the next tokens of each sequence.
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
    key_positions = torch.arange(offset + tokens.shape[1], device=tokens.device)
    key_documents = documents
    if cache is not None:
        key_documents = _append(cache, documents)
        if end_of_text is not None:
            cache.ended = cache.ended + (tokens == end_of_text).sum(1)
        cache.length += tokens.shape[1]
    positions = query_positions = key_positions[offset:]
    if key_documents is not None:
        positions = restarted(key_documents)[:, offset:]
    return Location(offset, positions, query_positions, key_positions, documents, key_documents)


def restarted(documents: Tensor) -> Tensor:
    """Return positions (batch, length) that restart at 0 where the document id changes."""
    index = torch.arange(documents.shape[1], device=documents.device)
    changes = documents[:, 1:] != documents[:, :-1]
    starts = torch.nn.functional.pad(changes, (1, 0)) * index
    return index - starts.cummax(1).values


def _append(cache: Cache, documents: Tensor | None) -> Tensor | None:
    """Append documents to those of the cache; return all."""
    if cache.length and (documents is None) != (cache.documents is None):
        raise ValueError(
            "Documents must be given with every part of a cached sequence, or with none; start "
            "again with a new cache."
        )
    if documents is not None and cache.documents is not None:
        documents = torch.cat([cache.documents, documents], 1)
    cache.documents = documents
    return documents
