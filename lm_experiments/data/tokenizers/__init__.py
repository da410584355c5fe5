"""Text to token ids and back, by the tokenizer that was chosen."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from lm_experiments.data.tokenizers.base import END_OF_TEXT, Ids, Tokenizer
from lm_experiments.data.tokenizers.learned import BPETokenizer, ByteTokenizer, grouped
from lm_experiments.data.tokenizers.pretrained import FileTokenizer
from lm_experiments.data.tokenizers.symbols import SymbolTokenizer
from lm_experiments.errors import InputError
from lm_experiments.registry import Choice, component, options_of

__all__ = [
    "END_OF_TEXT",
    "BPETokenizer",
    "ByteTokenizer",
    "FileTokenizer",
    "Ids",
    "SymbolTokenizer",
    "Tokenizer",
    "files_hash",
    "grouped",
    "is_exact",
    "load_tokenizer",
    "train_tokenizer",
]


def _class(name: str) -> type[Tokenizer]:
    found = component("tokenizer", name).build
    assert isinstance(found, type) and issubclass(found, Tokenizer)
    return found


def train_tokenizer(texts: Iterable[str], choice: Choice) -> Tokenizer:
    """Build the chosen tokenizer, from the training texts alone or from its files."""
    return _class(choice.name).train(texts, options_of("tokenizer", choice))


def files_hash(choice: Choice) -> str | None:
    """Return the sha256 in hex of the files a tokenizer is read from, None if there are none.

    Raises `InputError` if they cannot be read.
    """
    return _class(choice.name).files_hash(options_of("tokenizer", choice))


def is_exact(choice: Choice) -> bool:
    """Return whether every text is known to come back from its tokens."""
    return _class(choice.name).exact


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer that `save` wrote; raises `InputError` if there is none."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return _class(saved["name"]).from_state(saved["state"])
    except OSError as error:
        raise InputError(f"{path} cannot be read as a tokenizer: {error.strerror}") from error
    except Exception as error:  # the backend raises bare exceptions on a damaged vocabulary
        raise InputError(f"{path} is not a saved tokenizer; prepare the data again") from error
