"""Tokenizers read from files, and the unknown one of ready tokens.

Their end-of-text token is any of their ids, as the files say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers

from lm_experiments.data.hashing import hash_of
from lm_experiments.data.lfs import check_pulled
from lm_experiments.data.tokenizers.base import END_OF_TEXT, BackedTokenizer, Ids, Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.fields import Use
from lm_experiments.registry import register

JSON_FILE = "a tokenizer.json"
# What normalizers and divisions into words change: case, spaces, accents, ligatures.
PROBE = "The  end\n\tCafe\u0301 \ufb01\u00bd "
GPT2_FOLDER = "a folder with vocab.json and merges.txt, or with encoder.json and vocab.bpe"


@dataclass(frozen=True)
class FileOptions:
    """Options of a tokenizer file.

    Attributes:
        path: a ``tokenizer.json``, or the folder it is in.
        end_of_text: the name of the token that ends documents.
    """

    path: Annotated[str, Use.SOURCE]
    end_of_text: str = END_OF_TEXT


@dataclass(frozen=True)
class GPT2Options:
    """Options of the tokenizer of GPT-2.

    Attributes:
        path: the folder of its two files.
    """

    path: Annotated[str, Use.SOURCE]


@dataclass(frozen=True)
class NoTokenizerOptions:
    """Options of ready tokens.

    Attributes:
        vocab_size: the number of ids: 50257 for GPT-2.
    """

    vocab_size: int

    def __post_init__(self) -> None:
        if self.vocab_size < 2:
            raise InputError(
                f"tokenizer.vocab_size={self.vocab_size} must be at least 2; "
                "type for example tokenizer.vocab_size=50257, which is GPT-2's."
            )


@register("tokenizer", "file", FileOptions)
class FileTokenizer(BackedTokenizer):
    """A tokenizer of the `tokenizers` library, as its `tokenizer.json` describes it.

    Nothing is added at the start or the end of a text, and the names of special tokens in it are
    ordinary text.
    """

    def __init__(self, backend: hf.Tokenizer, end_of_text: str) -> None:
        """Take a tokenizer and the name of the token that ends its documents."""
        super().__init__(backend)
        self.end_of_text = end_of_text
        backend.encode_special_tokens = True
        backend.no_padding()
        backend.no_truncation()

    @classmethod
    def train(cls, texts: Iterable[str], options: Any) -> FileTokenizer:
        """Read the tokenizer from `options.path`; `texts` are not used."""
        path, end_of_text = _json_file(options.path), options.end_of_text
        backend = _parsed(_json(path, JSON_FILE), end_of_text, path)
        return cls(backend, _checked_end(backend, end_of_text, path))

    @classmethod
    def files_hash(cls, options: Any) -> str | None:
        """Return the sha256 in hex of the JSON in the file."""
        return hash_of(_json(_json_file(options.path), JSON_FILE))

    @classmethod
    def from_state(cls, state: Any) -> FileTokenizer:
        """Build the tokenizer from what `state` gave."""
        return cls(hf.Tokenizer.from_str(json.dumps(state["backend"])), state["end_of_text"])

    def state(self) -> Any:
        """Return the tokenizer as its library writes it, and the name of its end of text."""
        return {"backend": json.loads(self._backend.to_str()), "end_of_text": self.end_of_text}

    @cached_property
    def ordinary_size(self) -> int:
        """One less than the number of ids, of which one ends documents."""
        return max(self._backend.get_vocab(with_added_tokens=True).values())

    @cached_property
    def end_of_text_id(self) -> int:
        """The id that follows every document, anywhere among the others."""
        found = self._backend.token_to_id(self.end_of_text)
        assert found is not None
        return int(found)

    @cached_property
    def unknown_id(self) -> int | None:
        """The id of unknown text, or None if the vocabulary can encode any text."""
        unknown = getattr(self._backend.model, "unk_token", None)
        return None if unknown is None else self._backend.token_to_id(unknown)

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, using all cores."""
        encoded = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._without_end(np.array(e.ids, dtype=np.int32)) for e in encoded]

    def _without_end(self, ids: Ids) -> Ids:
        """Spell the end of text wherever the vocabulary has its name as a piece of text."""
        end = self.end_of_text_id
        if end not in ids:
            return ids
        return np.concatenate([self._letters if token == end else [token] for token in ids])

    @cached_property
    def _letters(self) -> Ids:
        """The ids of the name of the end of text, letter by letter; `InputError` without any."""
        try:
            spelled = [self._backend.model.tokenize(letter) for letter in self.end_of_text]
        except Exception:  # the library raises bare exceptions
            spelled = []
        ids = [token.id for tokens in spelled for token in tokens]
        if not ids or self.end_of_text_id in ids:
            raise InputError(
                f"the text holds {self.end_of_text}, which tokenizer={self.name} cannot spell but "
                "as the end of text; cut the text there with data.separator=, or type "
                "tokenizer.end_of_text= and the name of another token"
            )
        return np.array(ids, dtype=np.int32)

    def token_bytes(self) -> NDArray[np.int64] | None:
        """Return the bytes of each id of a byte-level vocabulary, None for other kinds.

        None too where the tokenizer changes text, whose bytes are then not those of its ids.
        """
        is_changed = self.altered([PROBE], self.encode_batch([PROBE]))
        if is_changed or not isinstance(self._backend.decoder, decoders.ByteLevel):
            return None
        sizes = np.zeros(self.vocab_size, dtype=np.int64)
        for token, index in self._backend.get_vocab(with_added_tokens=False).items():
            sizes[index] = len(token)  # one character stands for one byte
        for index, added in self._backend.get_added_tokens_decoder().items():
            sizes[index] = len(added.content.encode())
        sizes[self.end_of_text_id] = 0
        return sizes


@register("tokenizer", "gpt2", GPT2Options)
class GPT2Tokenizer(FileTokenizer):
    """The byte-level BPE of GPT-2 (Radford et al. 2019), from its vocabulary and its merges."""

    @classmethod
    def train(cls, texts: Iterable[str], options: Any) -> GPT2Tokenizer:
        """Read the two files from the folder `options.path`; `texts` are not used."""
        vocabulary, merges = _gpt2_files(options.path)
        try:
            backend = hf.Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
        except Exception as error:  # the library raises bare exceptions
            raise InputError(
                f"{vocabulary} and {merges.name} are not a vocabulary and its merges "
                f"({_one_line(error)}); download them again"
            ) from error
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([_checked_end(backend, END_OF_TEXT, vocabulary)])
        return cls(backend, END_OF_TEXT)

    @classmethod
    def files_hash(cls, options: Any) -> str | None:
        """Return the sha256 in hex of the vocabulary and the merges, without comments."""
        vocabulary, merges = _gpt2_files(options.path)
        rules = [line for line in _read(merges).splitlines() if not line.startswith("#version")]
        return hash_of([_json(vocabulary, GPT2_FOLDER), rules])


@register("tokenizer", "none", NoTokenizerOptions)
class NoTokenizer(Tokenizer):
    """The unknown tokenizer of ready tokens: it has a size, and turns nothing into text."""

    def __init__(self, vocab_size: int) -> None:
        self.size = vocab_size

    @classmethod
    def train(cls, texts: Iterable[str], options: NoTokenizerOptions) -> NoTokenizer:
        """Take the size from the options."""
        return cls(options.vocab_size)

    def state(self) -> int:
        """Return the size."""
        return self.size

    @cached_property
    def fingerprint(self) -> str:
        """The same for every size: a larger one does not make other tokens of the text."""
        return hash_of({"name": self.name})

    @property
    def ordinary_size(self) -> int:
        """One less than the size: where the end of text lies is not known."""
        return self.size - 1

    @property
    def end_of_text_id(self) -> int:
        """Not known; raises `InputError`."""
        raise self._unknown()

    def encode(self, text: str) -> Ids:
        """Raise `InputError`: no text can be encoded."""
        raise self._unknown()

    def decode_ordinary(self, ids: list[int]) -> str:
        """Raise `InputError`: no text can be had."""
        raise self._unknown()

    def _unknown(self) -> InputError:
        return InputError(
            "tokenizer=none has no text for its tokens; type tokenizer=gpt2 or tokenizer=file, "
            "with tokenizer.path=, to train with the tokenizer that made them"
        )


def _json_file(typed: str) -> Path:
    path = Path(typed).expanduser()
    return path / "tokenizer.json" if path.is_dir() else path


def _gpt2_files(typed: str) -> tuple[Path, Path]:
    folder = Path(typed).expanduser()
    for names in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
        vocabulary, merges = (folder / name for name in names)
        if vocabulary.is_file() and merges.is_file():
            return vocabulary, merges
    raise InputError(f"tokenizer.path={folder} is not {GPT2_FOLDER}; type one that is")


def _read(path: Path) -> str:
    try:
        check_pulled(path)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError(
            f"tokenizer.path={path} cannot be read ({reason}); type the path of {JSON_FILE}"
        ) from error


def _json(path: Path, expected: str) -> Any:
    text = _read(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(
            f"tokenizer.path={path} is not JSON ({_one_line(error)}); type the path of {expected}"
        ) from error


def _parsed(values: Any, end_of_text: str, path: Path) -> hf.Tokenizer:
    try:
        for token in values.get("added_tokens") or ():
            # Only a special token can be kept from being found in ordinary text.
            token["special"] = token["special"] or token["content"] == end_of_text
        return hf.Tokenizer.from_str(json.dumps(values))
    except Exception as error:  # the library raises bare exceptions
        raise InputError(
            f"tokenizer.path={path} is not a tokenizer.json ({_one_line(error)}); "
            f"type the path of {JSON_FILE}"
        ) from error


def _checked_end(backend: hf.Tokenizer, end_of_text: str, path: Path) -> str:
    if backend.token_to_id(end_of_text) is None:
        special = [token.content for token in backend.get_added_tokens_decoder().values()]
        known = f"; its special tokens are {', '.join(special)}" if special else ""
        raise InputError(
            f"{path} has no token {end_of_text} to end documents with{known}; "
            "type tokenizer.end_of_text= and the name of one it has, in quotes"
        )
    return end_of_text


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
