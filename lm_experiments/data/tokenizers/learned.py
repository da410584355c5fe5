"""Tokenizers that need no files: bytes, characters, and byte-level BPE.

Their end-of-text token is the last id.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from lm_experiments.data.tokenizer_sample import LONGEST_PIECE, chunks, sample
from lm_experiments.data.tokenizers.base import UNKNOWN, BackedTokenizer, Ids, Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.registry import NoOptions, register

BYTES = 256
# All bytes and the end of text.
SMALLEST_BPE_VOCABULARY = BYTES + 1


@register("tokenizer", "bytes")
class ByteTokenizer(Tokenizer):
    """One token for each byte of UTF-8."""

    exact = True

    @classmethod
    def train(cls, texts: Iterable[str], options: NoOptions) -> ByteTokenizer:
        """Build the tokenizer, which learns nothing from `texts`."""
        return cls()

    @classmethod
    def from_state(cls, state: Any) -> ByteTokenizer:
        """Build the tokenizer, which has no state."""
        return cls()

    def state(self) -> None:
        """Return None: all byte tokenizers are the same."""

    @property
    def ordinary_size(self) -> int:
        """The number of bytes."""
        return BYTES

    def encode(self, text: str) -> Ids:
        """Return the UTF-8 bytes of one text."""
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)

    def token_bytes(self) -> NDArray[np.int64]:
        """Return one byte for each id but the end of text."""
        return np.append(np.ones(BYTES, dtype=np.int64), 0)

    def decode_ordinary(self, ids: list[int]) -> str:
        """Return the text whose UTF-8 bytes are given."""
        return bytes(ids).decode(errors="replace")


@register("tokenizer", "chars")
class CharTokenizer(Tokenizer):
    """One token for each character of the training text, and one for all others."""

    learns_from_text = True

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self._codes = _code_points(characters)

    @classmethod
    def train(cls, texts: Iterable[str], options: NoOptions) -> CharTokenizer:
        """Take the characters of `texts` in the order of their code points."""
        characters: set[str] = set()
        for text in texts:
            characters.update(text)
        return cls("".join(sorted(characters)))

    def state(self) -> str:
        """Return the characters in order."""
        return self.characters

    @property
    def ordinary_size(self) -> int:
        """The number of characters, and one for the unknown."""
        return len(self.characters) + 1

    @property
    def unknown_id(self) -> int:
        """The id of every character that the training text lacks."""
        return len(self.characters)

    def encode(self, text: str) -> Ids:
        """Return one id for each character."""
        codes = _code_points(text)
        places = np.searchsorted(self._codes, codes)
        known = np.append(self._codes, 0)[places] == codes
        return np.where(known, places, self.unknown_id).astype(np.int32)

    def decode_ordinary(self, ids: list[int]) -> str:
        """Return the characters, with U+FFFD for the unknown."""
        return "".join((self.characters + UNKNOWN)[token] for token in ids)


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


@dataclass(frozen=True)
class BPEOptions:
    """Options of byte-level BPE.

    Attributes:
        vocab_size: the number of ids, the end-of-text token included.
        sample_bytes: the vocabulary is trained on at most this many UTF-8 bytes of training text.
        sample_seed: draws the sample; of a streamed corpus it is the beginning.
    """

    vocab_size: int = 1024
    sample_bytes: int = 50_000_000
    sample_seed: int = 0

    def __post_init__(self) -> None:
        if self.vocab_size < SMALLEST_BPE_VOCABULARY:
            raise InputError(
                f"tokenizer.vocab_size={self.vocab_size} is too small for byte-level BPE, which "
                "holds 256 bytes and an end of text; "
                f"type tokenizer.vocab_size={SMALLEST_BPE_VOCABULARY} or more."
            )
        if self.sample_bytes < 1:
            raise InputError(
                f"tokenizer.sample_bytes={self.sample_bytes} must be at least 1; "
                "type for example tokenizer.sample_bytes=50000000."
            )


@register("tokenizer", "bpe", BPEOptions)
class BPETokenizer(BackedTokenizer):
    """Byte-level byte-pair encoding (Sennrich et al. 2016; bytes as in Radford et al. 2019).

    Text is first divided as in GPT-2 into words, numbers, signs and spaces, here of at most 32
    characters, which bounds the time and the memory that text without spaces takes.
    """

    learns_from_text = True
    exact = True

    @classmethod
    def train(cls, texts: Iterable[str], options: BPEOptions) -> BPETokenizer:
        """Learn merges from a sample of `texts`; `InputError` if they yield too few."""
        wanted = options.vocab_size
        backend = _untrained()
        trainer = trainers.BpeTrainer(
            # No end of text here: the backend would find its name in ordinary text.
            vocab_size=wanted - 1,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        drawn = sample(list(texts), options.sample_bytes, options.sample_seed)
        backend.train_from_iterator(drawn, trainer)
        reached = backend.get_vocab_size() + 1
        if reached < wanted:
            raise InputError(
                f"tokenizer.vocab_size={wanted} is more than the training text yields, which is "
                f"{reached}; type tokenizer.vocab_size={reached} or less"
            )
        return cls(backend)

    @classmethod
    def from_state(cls, state: Any) -> BPETokenizer:
        """Build the tokenizer from its merges and rules."""
        return cls(hf.Tokenizer.from_str(json.dumps(state)))

    def state(self) -> Any:
        """Return the merges and rules as the `tokenizers` library writes them."""
        return json.loads(self._backend.to_str())

    @cached_property
    def ordinary_size(self) -> int:
        """The number of bytes and merges."""
        return self._backend.get_vocab_size()

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, on all cores, in chunks so that memory stays bounded."""
        parts = [list(chunks(text)) for text in texts]
        groups = grouped(itertools.chain(*parts), most_characters=1 << 20)
        encoded = (
            np.array(encoding.ids, dtype=np.int32)
            for group in groups
            for encoding in self._backend.encode_batch_fast(group, add_special_tokens=False)
        )
        empty = np.zeros(0, dtype=np.int32)
        return [np.concatenate([empty, *itertools.islice(encoded, len(part))]) for part in parts]


def _untrained() -> hf.Tokenizer:
    most = f"{{1,{LONGEST_PIECE}}}"
    pattern = (
        rf"'(?:[sdmt]|ll|ve|re)| ?[\p{{L}}\p{{M}}]{most}| ?\p{{N}}{most}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]{most}|\s{most}(?!\S)|\s{most}"
    )
    backend = hf.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(hf.Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def grouped(
    texts: Iterable[str], most_characters: int, most_texts: int = 1 << 16
) -> Iterator[list[str]]:
    """Yield successive groups of texts, each ended by the text that fills it."""
    group: list[str] = []
    characters = 0
    for text in texts:
        group.append(text)
        characters += len(text)
        if characters >= most_characters or len(group) >= most_texts:
            yield group
            group, characters = [], 0
    if group:
        yield group
