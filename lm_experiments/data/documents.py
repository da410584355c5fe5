"""The documents of a stream of tokens, and sums of losses over each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lm_experiments.data.store import CHUNK_TOKENS
from lm_experiments.data.tokens import ShardedTokens, Tokens


def document_ends(tokens: Tokens | ShardedTokens, end_of_text: int) -> NDArray[np.int64]:
    """Return the position of the last token of each document, (documents,).

    That is its end-of-text token. What follows the last one is a document too. Nothing is returned
    for tokens (N,) without any end of text, since their documents are unknown.
    """
    ends = np.concatenate(
        [
            start + np.flatnonzero(tokens[start : start + CHUNK_TOKENS] == end_of_text)
            for start in range(0, len(tokens), CHUNK_TOKENS)
        ]
    )
    last = len(tokens) - 1
    return np.append(ends, last) if len(ends) and ends[-1] != last else ends


class DocumentSums:
    """Sums of losses over the targets of each document, in float64.

    Attributes:
        sums: of what was added, (documents,).
        tokens: how many targets each document has, (documents,). The first token of all is not
            one, so the first document may have none.
    """

    def __init__(self, ends: NDArray[np.int64]) -> None:
        self._ends = ends
        self.sums = np.zeros(len(ends))
        self.tokens = np.diff(ends, prepend=0)

    def add(self, starts: NDArray[np.int64], losses: NDArray[np.float32]) -> None:
        """Add the losses (windows, context) of windows whose first inputs are at ``starts``.

        What lies past the last token is padding and does not count.
        """
        positions = (starts[:, None] + np.arange(1, losses.shape[1] + 1)).ravel()
        inside = positions <= self._ends[-1]
        documents = np.searchsorted(self._ends, positions[inside])
        first = int(documents[0])
        found = np.bincount(documents - first, weights=losses.ravel()[inside])
        self.sums[first : first + len(found)] += found
