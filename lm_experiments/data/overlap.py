"""How much of a held-out text occurs in the training text word for word."""

from __future__ import annotations

import hashlib
import itertools
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lm_experiments.data.config import PARTS
from lm_experiments.data.tokenizer_sample import chunks

LENGTH = 13
"""The words of a sequence, as in the contamination analysis of GPT-3 (Brown et al. 2020)."""

MOST = 1 << 23
"""The most hashes kept of one part's documents or sequences: 64 MiB."""

PIECES = 256
KNOWN_WORDS = 1 << 17
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SPACES = bytes.maketrans(string.punctuation.encode(), b" " * len(string.punctuation))

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Overlap:
    """What of a held-out text occurs in the training text; equal ones count once.

    A document occurs where a training document is exactly the same text. A sequence is 13 words in
    a row of one document; a word is what is left between white space and ASCII punctuation, in
    lower case. It occurs where a training document has the same words in a row. Of a part with more
    than `MOST` documents or sequences, a random sample of them is counted.
    """

    documents: int
    documents_in_training: int
    sequences: int
    sequences_in_training: int

    def __str__(self) -> str:
        documents = f"{self.documents_in_training:,} of {self.documents:,} documents"
        if not self.sequences:
            return f"{documents} occur in training; none has {LENGTH} words"
        share = 100 * self.sequences_in_training / self.sequences
        percent = "less than 0.1" if 0 < share < 0.05 else f"{share:.1f}"
        return f"{documents} and {percent} % of its {LENGTH}-word sequences occur in training"


class Sample:
    """The smallest of the distinct hashes it was given, at most `MOST`: all of them, or a sample.

    Hashes are as good as random, and what two samples share can be found up to the smaller `last`.
    """

    def __init__(self) -> None:
        self.last = np.uint64(2**64 - 1)
        self._parts: list[Hashes] = [np.empty(0, dtype=np.uint64)]
        self._added = 0

    def add(self, hashes: Hashes) -> None:
        """Add hashes, shape (n,)."""
        self._parts.append(hashes[hashes <= self.last])
        self._added += len(self._parts[-1])
        if self._added >= MOST // 2:
            self.values()

    def values(self) -> Hashes:
        """Return what is kept, ascending."""
        merged = np.sort(np.concatenate(self._parts))
        is_new = np.ones(len(merged), dtype=bool)
        is_new[1:] = merged[1:] != merged[:-1]
        kept = merged[is_new][:MOST]
        if len(kept) == MOST:
            self.last = kept[-1]
        self._parts, self._added = [kept], 0
        return kept

    def found_in(self, other: Sample) -> tuple[int, int]:
        """Return how many hashes were compared, and how many of those the other has."""
        own, others = self.values(), other.values()
        last = min(self.last, other.last)
        own, others = own[own <= last], others[others <= last]
        return len(own), len(np.intersect1d(own, others, assume_unique=True))


class WordHashes(dict[bytes, int]):
    """The hash of each word, kept since most words return."""

    def __missing__(self, word: bytes) -> int:
        self[word] = found = _hash(word)
        return found


class PartText:
    """The documents and sequences of one part, as samples of their hashes."""

    def __init__(self) -> None:
        self._documents, self._sequences = Sample(), Sample()
        self._words = WordHashes()

    def add(self, texts: Sequence[str]) -> None:
        """Add documents."""
        hashes = (_hash(text.encode()) for text in texts)
        self._documents.add(np.fromiter(hashes, np.uint64, len(texts)))
        pieces = _pieces(texts)
        while batch := list(itertools.islice(pieces, PIECES)):
            self._sequences.add(_sequences(batch, self._words))
            if len(self._words) > KNOWN_WORDS:
                self._words.clear()

    def overlap(self, train: PartText) -> Overlap:
        """Return what of this part occurs in the training part."""
        documents = self._documents.found_in(train._documents)
        return Overlap(*documents, *self._sequences.found_in(train._sequences))


def overlap_lines(overlaps: Mapping[str, Overlap | str], parts: Iterable[str]) -> list[str]:
    """Return a line for each held-out part; `overlaps` lacks those of which it is not known."""
    unknown = (
        "how much of it occurs in training is not known, as it came as tokens or was prepared by "
        "an earlier version"
    )
    return [f"{PARTS[part]} text: {overlaps.get(part, unknown)}" for part in parts]


def _pieces(texts: Iterable[str]) -> Iterator[list[bytes]]:
    """Yield words; a long document is several pieces that share the words of cut sequences."""
    for text in texts:
        words: list[bytes] = []
        for chunk in chunks(text):
            words = words[1 - LENGTH :] + chunk.lower().encode().translate(_SPACES).split()
            yield words


def _sequences(pieces: Sequence[Sequence[bytes]], hashes: WordHashes) -> Hashes:
    """Return the hash of each sequence of each piece."""
    sizes = list(map(len, pieces))
    every = itertools.chain.from_iterable(pieces)
    words = np.fromiter(map(hashes.__getitem__, every), np.uint64, sum(sizes))
    count = max(0, len(words) - LENGTH + 1)
    found = np.zeros(count, dtype=np.uint64)
    for start in range(LENGTH):
        found = found * _FACTOR + words[start : start + count]
    piece = np.repeat(np.arange(len(pieces)), sizes)
    whole: Hashes = found[piece[:count] == piece[LENGTH - 1 :]]
    return whole


def _hash(text: bytes) -> int:
    # Python's own hash differs between processes.
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
