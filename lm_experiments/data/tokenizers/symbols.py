"""The token ids of synthetic tasks as text: their numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lm_experiments.data.tokenizers.base import Ids, Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.registry import NoOptions, register


@register("tokenizer", "symbols")
class SymbolTokenizer(Tokenizer):
    """The ids of a synthetic task, as numbers between spaces: "3 17 4"."""

    def __init__(self, ids: int) -> None:
        self.size = ids

    @classmethod
    def train(cls, texts: Iterable[str], options: NoOptions) -> SymbolTokenizer:
        """Raise `InputError`: how many ids there are is the task's to say."""
        raise InputError("tokenizer=symbols is of synthetic tasks alone; type tokenizer=bpe.")

    def state(self) -> int:
        """Return the number of ids."""
        return self.size

    @property
    def ordinary_size(self) -> int:
        """The number of ids."""
        return self.size

    def encode(self, text: str) -> Ids:
        """Return the ids of one text, shape (tokens,); `InputError` for anything but ids."""
        words = text.split()
        if wrong := [word for word in words if not word.isdecimal() or int(word) >= self.size]:
            raise InputError(
                f"{wrong[0]!r} is no token id of this task; write numbers from 0 to "
                f"{self.size - 1} with spaces between"
            )
        return np.array(words, dtype=np.int32)

    def decode_ordinary(self, ids: list[int]) -> str:
        """Return the ids, each after a space, so that they can follow a prompt."""
        return "".join(f" {token}" for token in ids)
