"""The texts that losses are computed over: documents of a corpus, and their encoding."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lm_experiments.data import (
    DataConfig,
    Source,
    Tokenizer,
    TokenStore,
    load_documents,
    split_documents,
)
from lm_experiments.data.config import STREAMED
from lm_experiments.data.hub import Dataset, part_of
from lm_experiments.data.tokens import ShardedTokens, Tokens
from lm_experiments.errors import InputError

# Documents per call of the tokenizer.
BATCH_DOCUMENTS = 1000


@dataclass(frozen=True)
class EncodedText:
    """The tokens of documents in order, each document followed by one end-of-text token.

    Attributes:
        tokens: shape (token count,), of an unsigned type.
        bytes: UTF-8 bytes of the text without end-of-text tokens; None if unknown, or if some of
            the text does not come back from its tokens.
        altered: the number of documents that do not come back.
    """

    tokens: Tokens | ShardedTokens
    bytes: int | None
    altered: int = 0

    @classmethod
    def of(cls, part: Source) -> EncodedText:
        """Return the tokens of a store, still memory-mapped; `InputError` for a task."""
        if not isinstance(part, TokenStore):
            raise InputError(
                "the problems of a synthetic task are no text; the accuracy of its runs is in "
                "their result.json, and of several in the table"
            )
        return cls(part.tokens, part.bytes, part.altered)


def encode(documents: Iterable[str], tokenizer: Tokenizer) -> EncodedText:
    """Encode documents; their tokens are held in memory."""
    parts, size, altered = [np.empty(0, dtype=np.uint32)], 0, 0
    remaining = iter(documents)
    while batch := list(itertools.islice(remaining, BATCH_DOCUMENTS)):
        size += sum(len(document.encode()) for document in batch)
        encoded = tokenizer.encode_batch(batch)
        altered += tokenizer.altered(batch, encoded)
        for ids in encoded:
            parts.append(np.append(ids, tokenizer.end_of_text_id).astype(np.uint32))
    return EncodedText(np.concatenate(parts), None if altered else size, altered)


def documents_to_evaluate(data: DataConfig, cache_dir: Path) -> Iterator[str]:
    """Yield all documents of text files, but only the validation documents of other corpora.

    The training documents of a corpus may have been trained on. The metadata cache of `datasets`
    is below ``cache_dir``.

    Raises:
        InputError: if the corpus cannot be read, or is not text.
    """
    if not data.has_text:
        raise InputError(
            f"data={data.name} is no text that another tokenizer could encode; leave out --data to "
            "evaluate a run on its own tokens"
        )
    if data.name in STREAMED:
        dataset = Dataset(data, cache_dir)
        train, *val = dataset.splits
        for split in val:
            yield from dataset.documents(split)
        if not val:
            yield from (text for text in dataset.documents(train) if part_of(text, data) == "val")
        return
    documents = load_documents(data).texts
    yield from documents if data.name == "text" else split_documents(documents, data).val
