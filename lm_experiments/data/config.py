"""What can be chosen about the text and its tokenizer, checked as soon as it is built."""

from __future__ import annotations

from dataclasses import dataclass

READS_PATH = {"kjv": False, "text": True}
"""Every corpus by name, with whether it reads `data.path`."""

CHOOSES_VOCABULARY = {"bpe": True, "bytes": False, "chars": False}
"""Every tokenizer by name, with whether its vocabulary size is chosen."""

SPLITS = ("document", "tail", "auto")
SMALLEST_BPE_VOCABULARY = 257


class DataError(ValueError):
    """Bad input to the data package, told in one sentence."""


@dataclass(frozen=True)
class DataConfig:
    """One corpus and how it is divided into training and validation text.

    `separator` cuts each file of a `text` corpus into documents. `val_fraction` is a share of the
    UTF-8 bytes. The `auto` split is `document` from 10 documents on and `tail` below that.
    """

    name: str = "kjv"
    path: str | None = None
    separator: str | None = None
    val_fraction: float = 0.1
    split: str = "auto"
    split_seed: int = 0

    def __post_init__(self) -> None:
        """Check every value, raising `DataError`."""
        _check_choice("data.name", self.name, READS_PATH)
        _check_choice("data.split", self.split, SPLITS)
        if not 0 < self.val_fraction < 1:
            raise DataError(
                f"data.val_fraction={self.val_fraction} must lie between 0 and 1; "
                "type for example data.val_fraction=0.1"
            )
        if self.separator == "":
            raise DataError("data.separator is empty; type data.separator=null for whole files")
        self._check_path()

    def _check_path(self) -> None:
        if READS_PATH[self.name]:
            if not self.path:
                raise DataError(
                    f"data.name={self.name} has no data.path; "
                    "type data.path= and a file, a folder or a glob"
                )
            return
        for option in ("path", "separator"):
            value = getattr(self, option)
            if value is not None:
                raise DataError(
                    f"data.{option}={value!r} is not read by data.name={self.name}; "
                    "type data.name=text to use it"
                )


@dataclass(frozen=True)
class TokenizerConfig:
    """One tokenizer.

    `vocab_size` is for `bpe` alone and counts the end-of-text token. The BPE vocabulary is trained
    on at most `sample_bytes` of UTF-8 training text, drawn with `sample_seed`.
    """

    name: str = "bpe"
    vocab_size: int | None = None
    sample_bytes: int = 50_000_000
    sample_seed: int = 0

    def __post_init__(self) -> None:
        """Check every value, raising `DataError`."""
        _check_choice("tokenizer.name", self.name, CHOOSES_VOCABULARY)
        if self.sample_bytes < 1:
            raise DataError(
                f"tokenizer.sample_bytes={self.sample_bytes} must be at least 1; "
                "type for example tokenizer.sample_bytes=50000000"
            )
        if not CHOOSES_VOCABULARY[self.name]:
            if self.vocab_size is not None:
                raise DataError(
                    f"tokenizer.vocab_size={self.vocab_size} cannot be chosen for "
                    f"tokenizer={self.name}; type tokenizer.vocab_size=null"
                )
        elif self.vocab_size is None or self.vocab_size < SMALLEST_BPE_VOCABULARY:
            raise DataError(
                f"tokenizer.vocab_size={self.vocab_size} is too small for tokenizer={self.name}, "
                "which holds 256 bytes and an end of text; "
                f"type tokenizer.vocab_size={SMALLEST_BPE_VOCABULARY} or more"
            )


def _check_choice(key: str, value: str, known: dict[str, bool] | tuple[str, ...]) -> None:
    if value not in known:
        raise DataError(f"{key}={value!r} is unknown; type one of {', '.join(sorted(known))}")
