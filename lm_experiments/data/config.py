"""What can be chosen about the text and its tokenizer, checked as soon as it is built."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection
from dataclasses import dataclass

from lm_experiments.errors import InputError

_STREAMED = (
    "path",
    "separator",
    "dataset",
    "subset",
    "revision",
    "train_files",
    "val_files",
    "train_split",
    "val_split",
    "text_column",
    "max_documents",
    "max_bytes",
)
CORPORA: dict[str, tuple[str, ...]] = {
    "kjv": (),
    "text": ("path", "separator"),
    "tokens": ("path", "train_files", "val_files"),
    "tinystories": _STREAMED,
    "openwebtext": _STREAMED,
    "fineweb_edu": _STREAMED,
    "hf": _STREAMED,
}
"""Every corpus by name, with the options it reads beside those of the split."""

STREAMED = tuple(name for name, options in CORPORA.items() if options is _STREAMED)
"""The corpora that are read through `datasets`, a batch of documents at a time."""

CHOOSES_VOCABULARY = {
    "bpe": True,
    "bytes": False,
    "chars": False,
    "file": False,
    "gpt2": False,
    "none": True,
}
"""Every tokenizer by name, with whether its vocabulary size is chosen."""

READS_FILES = {
    "file": "a tokenizer.json",
    "gpt2": "a folder with vocab.json and merges.txt, or with encoder.json and vocab.bpe",
}
"""The tokenizers that are read from `tokenizer.path`, with what lies there."""

LEARNS_FROM_TEXT = ("bpe", "chars")

SPLITS = ("document", "tail", "auto")
SMALLEST_BPE_VOCABULARY = 257


@dataclass(frozen=True)
class DataConfig:
    """One corpus and how it is divided into training and validation text.

    `separator` cuts text files into documents. `val_fraction` is a share of the UTF-8 bytes. The
    `auto` split is `document` from 10 documents on and `tail` below that; of a streamed corpus it
    is `document`, where each is drawn by a hash of its text.

    Attributes:
        path: a file, folder or glob for `text`, a folder of `.bin` files for `tokens`, and a
            folder with a copy of the dataset for the streamed corpora, which download it otherwise.
        dataset: the dataset's name on the Hugging Face hub.
        subset: the configuration of the dataset, where it has several.
        revision: its commit, tag or branch; None is the newest at the time of preparing.
        train_files: a glob of files for training; None takes what the dataset declares.
        val_files: the same for validation.
        train_split: the name of the split for training, None for `train`.
        val_split: the name of the split for validation; None draws it from the training split.
        text_column: the column that holds the text, None for `text`.
        max_documents: at most so many documents of each split are read, from its beginning.
        max_bytes: at most so many UTF-8 bytes of each split, in whole documents.
    """

    name: str = "kjv"
    path: str | None = None
    separator: str | None = None
    val_fraction: float = 0.1
    split: str = "auto"
    split_seed: int = 0
    dataset: str | None = None
    subset: str | None = None
    revision: str | None = None
    train_files: str | None = None
    val_files: str | None = None
    train_split: str | None = None
    val_split: str | None = None
    text_column: str | None = None
    max_documents: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        """Check every value, raising `InputError`."""
        _check_choice("data.name", self.name, CORPORA)
        _check_choice("data.split", self.split, SPLITS)
        if not 0 < self.val_fraction < 1:
            raise InputError(
                f"data.val_fraction={self.val_fraction} must lie between 0 and 1; "
                "type for example data.val_fraction=0.1"
            )
        if self.separator == "":
            raise InputError("data.separator is empty; type data.separator=null for whole files")
        for option in ("max_documents", "max_bytes"):
            _check_at_least_one(f"data.{option}", getattr(self, option))
        self._check_read()
        self._check_source()
        self._check_division()

    @property
    def divided(self) -> bool:
        """Whether the corpus comes with validation text of its own."""
        return self.name == "tokens" or self.val_split is not None

    def _check_read(self) -> None:
        for option in dict.fromkeys(itertools.chain(*CORPORA.values())):
            value = getattr(self, option)
            if value is not None and option not in CORPORA[self.name]:
                reader = next(name for name in CORPORA if option in CORPORA[name])
                raise InputError(
                    f"data.{option}={value!r} is not read by data.name={self.name}; "
                    f"type data.name={reader} to use it"
                )

    def _check_source(self) -> None:
        if self.name in ("text", "tokens") and not self.path:
            what = "a file, a folder or a glob" if self.name == "text" else "a folder of .bin files"
            raise InputError(f"data.name={self.name} has no data.path; type data.path= and {what}")
        if self.name in STREAMED and not (self.path or self.dataset):
            raise InputError(
                f"data.name={self.name} has no data.dataset; type data.dataset= and its name on "
                "the Hugging Face hub, or data.path= and a folder with a copy of it"
            )
        if self.path and self.revision:
            raise InputError(
                f"data.revision={self.revision!r} is not read from a folder, which is what it is; "
                "type data.revision=null, or data.path=null to download that revision"
            )

    def _check_division(self) -> None:
        default = {field.name: field.default for field in dataclasses.fields(DataConfig)}
        for option in ("val_fraction", "split", "split_seed") if self.divided else ():
            value = getattr(self, option)
            if value != default[option]:
                raise InputError(
                    f"data.{option}={value!r} is not read, since the corpus has validation text "
                    f"of its own; type data.{option}={default[option]}"
                    + ("" if self.name == "tokens" else ", or data.val_split=null to draw it")
                )
        if self.name not in STREAMED:
            return
        if self.split == "tail":
            raise InputError(
                "data.split='tail' cannot be cut from a corpus that is streamed; "
                "type data.split=document, which draws whole documents"
            )
        has_files = (self.train_files is not None, self.val_files is not None)
        if any(has_files) and has_files != (True, self.val_split is not None):
            raise InputError(
                f"data.train_files={self.train_files!r}, data.val_files={self.val_files!r} and "
                f"data.val_split={self.val_split!r} do not go together; name files of both "
                "splits, or those for training alone with data.val_split=null"
            )


@dataclass(frozen=True)
class TokenizerConfig:
    """One tokenizer.

    `vocab_size` counts the end-of-text token; it is for `bpe`, and for `none`, which stands for
    the unknown tokenizer of ready tokens. The BPE vocabulary is trained on at most `sample_bytes`
    of UTF-8 training text, drawn with `sample_seed`; of a streamed corpus it is the beginning.
    `path` is what `file` and `gpt2` are read from, and `end_of_text` the name of the token that
    `file` ends documents with, None for `<|endoftext|>`.
    """

    name: str = "bpe"
    vocab_size: int | None = None
    sample_bytes: int = 50_000_000
    sample_seed: int = 0
    path: str | None = None
    end_of_text: str | None = None

    def __post_init__(self) -> None:
        """Check every value, raising `InputError`."""
        _check_choice("tokenizer.name", self.name, CHOOSES_VOCABULARY)
        if self.sample_bytes < 1:
            raise InputError(
                f"tokenizer.sample_bytes={self.sample_bytes} must be at least 1; "
                "type for example tokenizer.sample_bytes=50000000"
            )
        self._check_vocabulary()
        self._check_files()

    def _check_vocabulary(self) -> None:
        if not CHOOSES_VOCABULARY[self.name]:
            if self.vocab_size is not None:
                raise InputError(
                    f"tokenizer.vocab_size={self.vocab_size} cannot be chosen for "
                    f"tokenizer={self.name}; type tokenizer.vocab_size=null"
                )
        elif self.name == "none":
            if self.vocab_size is None or self.vocab_size < 2:
                raise InputError(
                    f"tokenizer.vocab_size={self.vocab_size} must be at least 2 for "
                    "tokenizer=none; type for example tokenizer.vocab_size=50257, that of GPT-2"
                )
        elif self.vocab_size is None or self.vocab_size < SMALLEST_BPE_VOCABULARY:
            raise InputError(
                f"tokenizer.vocab_size={self.vocab_size} is too small for tokenizer={self.name}, "
                "which holds 256 bytes and an end of text; "
                f"type tokenizer.vocab_size={SMALLEST_BPE_VOCABULARY} or more"
            )

    def _check_files(self) -> None:
        if self.name in READS_FILES and not self.path:
            raise InputError(
                f"tokenizer={self.name} has no tokenizer.path; "
                f"type tokenizer.path= and {READS_FILES[self.name]}"
            )
        if self.name not in READS_FILES and self.path is not None:
            raise InputError(
                f"tokenizer.path={self.path!r} is not read by tokenizer={self.name}; "
                "type tokenizer=file to use it"
            )
        if self.name != "file" and self.end_of_text is not None:
            raise InputError(
                f"tokenizer.end_of_text={self.end_of_text!r} is not read by "
                f"tokenizer={self.name}; type tokenizer.end_of_text=null"
            )


def check_pair(data: DataConfig, tokenizer: TokenizerConfig) -> None:
    """Raise `InputError` where the tokenizer cannot serve the corpus."""
    if data.name == "tokens" and tokenizer.name in LEARNS_FROM_TEXT:
        raise InputError(
            f"tokenizer={tokenizer.name} learns from text, which data=tokens does not have; type "
            "tokenizer=none tokenizer.vocab_size=50257, or tokenizer=gpt2 where those are its "
            "tokens"
        )
    if data.name != "tokens" and tokenizer.name == "none":
        raise InputError(
            f"tokenizer=none cannot encode the text of data={data.name}; type tokenizer=bpe"
        )
    if data.name in STREAMED and tokenizer.sample_seed:
        raise InputError(
            f"tokenizer.sample_seed={tokenizer.sample_seed} draws nothing from data={data.name}, "
            "whose vocabulary is trained on its beginning; type tokenizer.sample_seed=0"
        )


def _check_at_least_one(key: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise InputError(f"{key}={value} must be at least 1; type {key}=null for all there is")


def _check_choice(key: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise InputError(f"{key}={value!r} is unknown; type one of {', '.join(sorted(known))}")
