"""What a loss is taken over: the documents of a corpus, and a text as a tokenizer encodes it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lm_experiments.data import DataConfig, Tokenizer, TokenStore, load_documents, split_documents
from lm_experiments.data.config import STREAMED
from lm_experiments.data.hub import Dataset, is_drawn
from lm_experiments.data.store import ShardedTokens, Tokens
from lm_experiments.errors import InputError

# Documents that are encoded at once.
BATCH_DOCUMENTS = 1000


@dataclass(frozen=True)
class EncodedText:
    """Documents as a model reads them: their tokens in order, each followed by one end of text.

    Attributes:
        tokens: shape (token count,), an unsigned type.
        bytes: UTF-8 bytes of the text, without ends of text; None where that is not known.
        unknown: tokens that stand for what the vocabulary lacks.
    """

    tokens: Tokens | ShardedTokens
    bytes: int | None
    unknown: int = 0

    @classmethod
    def of(cls, store: TokenStore) -> EncodedText:
        """Return what a store holds, still mapped from its file."""
        return cls(store.tokens, store.bytes, store.unknown)


def encode(documents: Iterable[str], tokenizer: Tokenizer) -> EncodedText:
    """Encode documents; their tokens are held in memory."""
    parts, size, unknown = [np.empty(0, dtype=np.uint32)], 0, 0
    left = iter(documents)
    while batch := list(itertools.islice(left, BATCH_DOCUMENTS)):
        size += sum(len(document.encode()) for document in batch)
        for ids in tokenizer.encode_batch(batch):
            parts.append(np.append(ids, tokenizer.end_of_text_id).astype(np.uint32))
            if tokenizer.unknown_id is not None:
                unknown += int(np.count_nonzero(ids == tokenizer.unknown_id))
    return EncodedText(np.concatenate(parts), size, unknown)


def documents_to_evaluate(data: DataConfig, cache_dir: Path) -> Iterator[str]:
    """Yield all documents of text files, of any other corpus those for validation.

    Text files that are named are meant whole; of a corpus, the rest may have been trained on. What
    `datasets` notes for itself lies below ``cache_dir``.

    Raises:
        InputError: where the corpus cannot be read, or is not text.
    """
    if data.name == "tokens":
        raise InputError(
            "data=tokens is no text that another tokenizer could encode; leave out --data to "
            "evaluate a run on the tokens it was made for"
        )
    if data.name in STREAMED:
        dataset = Dataset(data, cache_dir)
        train, *val = dataset.splits
        for split in val:
            yield from dataset.documents(split)
        if not val:
            yield from (text for text in dataset.documents(train) if is_drawn(text, data))
        return
    documents = load_documents(data).texts
    yield from documents if data.name == "text" else split_documents(documents, data).val
