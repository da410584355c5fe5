"""The base class of tokenizers: text to token ids and back.

No text encodes to the end-of-text token, not even its own name.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray

from lm_experiments.data.hashing import hash_of
from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import write_atomically

END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "\ufffd"

Ids = NDArray[np.int32]


class Tokenizer(ABC):
    """Encodes text to ids below `vocab_size` and decodes them."""

    # Set by `register`.
    name: ClassVar[str]
    # Whether the vocabulary is learned from the training text.
    learns_from_text: ClassVar[bool] = False
    # The name of the token that ends documents.
    end_of_text: str = END_OF_TEXT
    # Whether every text is known to come back from its ids.
    exact: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def train(cls, texts: Iterable[str], options: Any) -> Tokenizer:
        """Build the tokenizer from training text, or from the files that its options name."""

    @classmethod
    def files_hash(cls, options: Any) -> str | None:
        """Return the sha256 in hex of the files that the options name, None if there are none.

        Raises `InputError` if they cannot be read.
        """
        return None

    @classmethod
    def from_state(cls, state: Any) -> Tokenizer:
        """Build the tokenizer from what `state` gave, by default the argument of the class."""
        return cls(state)  # type: ignore[call-arg]

    @abstractmethod
    def state(self) -> Any:
        """Return, as a JSON value, all that determines the tokenizer."""

    @property
    @abstractmethod
    def ordinary_size(self) -> int:
        """The number of ids that text encodes to."""

    @property
    def vocab_size(self) -> int:
        """The number of ids, the end-of-text token included."""
        return self.ordinary_size + 1

    @property
    def end_of_text_id(self) -> int:
        """The id that follows every document."""
        return self.ordinary_size

    @property
    def unknown_id(self) -> int | None:
        """The id of unknown text, or None if the vocabulary can encode any text."""
        return None

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 in hex of the vocabulary and its rules."""
        return hash_of({"name": self.name, "state": self.state()})

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """Return the ids of one text, shape (tokens,)."""

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, with the end of text by its name.

        Bytes that are not UTF-8 become U+FFFD. Raises `InputError` on an id out of range.
        """
        parts: list[list[int]] = [[]]
        for token in map(int, ids):
            if not 0 <= token < self.vocab_size:
                raise InputError(
                    f"token id {token} is not in the vocabulary; "
                    f"give ids from 0 to {self.vocab_size - 1}"
                )
            if token == self.end_of_text_id:
                parts.append([])
            else:
                parts[-1].append(token)
        return END_OF_TEXT.join(map(self.decode_ordinary, parts))

    @abstractmethod
    def decode_ordinary(self, ids: list[int]) -> str:
        """Return the text of ids among which there is no end of text."""

    def altered(self, texts: Sequence[str], encoded: Sequence[Ids]) -> int:
        """Return how many of the texts do not come back from their ids.

        Bits per byte mean nothing for such text: what is lost in it costs no bits.
        """
        if self.exact:
            return 0
        return sum(self.decode(ids) != text for text, ids in zip(texts, encoded, strict=True))

    def token_bytes(self) -> NDArray[np.int64] | None:
        """Return how many bytes of text each id stands for, shape (vocab_size,).

        None if that depends on the ids before it. The end of text stands for 0 bytes.
        """
        return None

    def save(self, path: Path) -> None:
        """Write the tokenizer to one JSON file, whole or not at all."""
        write_atomically(path, json.dumps({"name": self.name, "state": self.state()}))


class BackedTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library."""

    def __init__(self, backend: hf.Tokenizer) -> None:
        self._backend = backend

    def encode(self, text: str) -> Ids:
        """Return the ids of one text, shape (tokens,)."""
        return self.encode_batch([text])[0]

    def decode_ordinary(self, ids: list[int]) -> str:
        """Return the text of ids among which there is no end of text."""
        return self._backend.decode(ids, skip_special_tokens=False)
