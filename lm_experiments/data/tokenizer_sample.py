"""Draw the sample of text that a tokenizer is trained on, and cut long text into chunks."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence

from lm_experiments.data.hashing import keyed_generator

CHUNK_CHARACTERS = 1 << 16
DISTINCT_BYTES = 6_000_000
"""The most distinct text to train a vocabulary on; the trainer's memory grows with it."""

LONGEST_PIECE = 32
_PIECES = re.compile(rf"\w{{1,{LONGEST_PIECE}}}|[^\w\s]{{1,{LONGEST_PIECE}}}")

logger = logging.getLogger(__name__)


def chunks(text: str) -> Iterator[str]:
    """Cut text into chunks of at most 65,536 characters.

    Text is cut before a space between words, as a pre-tokenizer does, or at the limit if there is
    no such space.
    """
    start = 0
    while len(text) - start > CHUNK_CHARACTERS:
        low, limit = start + CHUNK_CHARACTERS // 2, start + CHUNK_CHARACTERS
        end = text.rfind(" ", low, limit)
        while end > low and text[end - 1].isspace():
            end = text.rfind(" ", low, end)
        if end <= low:
            end = limit
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def sample(texts: Sequence[str], limit: int, seed: int) -> Iterator[str]:
    """Yield documents in random order up to `limit` UTF-8 bytes.

    Documents longer than a chunk are drawn chunk by chunk, and the last one is cut at the limit.
    Text in which few words repeat ends earlier, with a warning.
    """
    parts = [chunk for text in texts for chunk in chunks(text)]
    order = keyed_generator("sample", seed).permutation(len(parts))
    drawn = _within_bytes((parts[index] for index in order), limit)
    yield from _within_distinct(drawn, DISTINCT_BYTES)


def _within_bytes(texts: Iterable[str], limit: int) -> Iterator[str]:
    for text in texts:
        encoded = text.encode()
        yield text if len(encoded) <= limit else encoded[:limit].decode(errors="ignore")
        limit -= len(encoded)
        if limit <= 0:
            return


def _within_distinct(texts: Iterable[str], limit: int) -> Iterator[str]:
    seen: set[int] = set()
    distinct = 0
    for text in texts:
        pieces = {hash(piece): piece for piece in set(_PIECES.findall(text))}
        new = pieces.keys() - seen
        distinct += sum(len(pieces[key].encode()) for key in new)
        if distinct > limit and seen:
            logger.warning(
                "the vocabulary is trained on less text than tokenizer.sample_bytes allows: "
                "its words hardly repeat, and %d bytes of distinct ones are enough",
                limit,
            )
            return
        seen |= new
        yield text
