"""The options of a corpus, checked when they are built."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Annotated, Any

from lm_experiments.data.tasks import TASKS, TaskConfig
from lm_experiments.errors import InputError
from lm_experiments.fields import Use
from lm_experiments.registry import Choice, component

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
    "tinyshakespeare": ("path",),
    "tokens": ("path", "train_files", "val_files"),
    "hf": _STREAMED,
    "tinystories": _STREAMED,
    "openwebtext": _STREAMED,
    "fineweb_edu": _STREAMED,
    "wikitext103": _STREAMED,
    **dict.fromkeys(TASKS, ()),
}
"""Every corpus by name, with the options it reads beside those of the split."""

PARTS = {"train": "training", "val": "validation", "test": "test"}
"""What a corpus is divided into, with the words for it; there need be no test part."""

STREAMED = tuple(name for name, options in CORPORA.items() if options is _STREAMED)
"""The corpora that are read through `datasets`, a batch of documents at a time."""

# Hydra leaves the backslashes of a quoted word as they are.
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
ESCAPE = re.compile(r"\\([nrt])")


@dataclass(frozen=True)
class DataConfig:
    """One corpus, and how it is divided into training, validation and test text.

    Attributes:
        name: the corpus: kjv, text, tokens, hf, a dataset known by name, or a synthetic task.
        path: a file, folder or glob of text; the folder of ``.bin`` files for tokens; the file of
            tiny Shakespeare, or the folder with a copy of a dataset, null to download it.
        separator: cuts text files into documents; \\n, \\r and \\t in it are line breaks and a tab.
            null takes whole files, and each line of a dataset of text files.
        val_fraction: the share of the UTF-8 bytes that is for validation.
        test_fraction: the share held out from training, validation and tuning, and measured once
            after training; 0 for none. It is taken from what would be training text.
        split: how validation and test text are chosen: ``document``, ``tail`` (the last part of the
            text) or ``auto``, which is document from 10 documents on. Streamed corpora draw each
            document by a hash of its text. Equal documents are drawn together.
        split_seed: draws the documents for validation, and for the test.
        dataset: the dataset's name on the Hugging Face hub, for example roneneldan/TinyStories.
        subset: the configuration of the dataset, for datasets with several.
        revision: its commit, tag or branch; null is the newest when the data is prepared.
        train_files: a glob of files for training; null takes what the dataset declares, and
            ``*train*.bin`` for tokens.
        val_files: the same for validation.
        train_split: the name of the split for training; null is train.
        val_split: the name of the split for validation; null draws it from the training split.
        text_column: the column that holds the text; null is text.
        max_documents: the most documents read of each split, from its beginning; null reads all.
        max_bytes: the most UTF-8 bytes read of each split, in whole documents; null reads all.
        task: the problems of a synthetic task.
    """

    name: str = "kjv"
    path: Annotated[str | None, Use.SOURCE] = None
    separator: str | None = None
    val_fraction: float = 0.1
    test_fraction: Annotated[float, Use.SOURCE] = 0.0
    split: str = "auto"
    split_seed: int = 0
    dataset: str | None = None
    subset: str | None = None
    revision: Annotated[str | None, Use.SOURCE] = None
    train_files: str | None = None
    val_files: str | None = None
    train_split: str | None = None
    val_split: str | None = None
    text_column: str | None = None
    max_documents: int | None = None
    max_bytes: int | None = None
    task: Annotated[TaskConfig, Use.SOURCE] = field(default_factory=TaskConfig)

    def __post_init__(self) -> None:
        for option, known in (("name", CORPORA), ("split", ("document", "tail", "auto"))):
            if (value := getattr(self, option)) not in known:
                raise InputError(
                    f"data.{option}={value!r} is unknown; type one of {', '.join(sorted(known))}"
                )
        if not 0 < self.val_fraction < 1:
            raise InputError(
                f"data.val_fraction={self.val_fraction} must lie between 0 and 1; "
                "type for example data.val_fraction=0.1"
            )
        if not 0 <= self.test_fraction < 1 - self.val_fraction:
            raise InputError(
                f"data.test_fraction={self.test_fraction} must be 0 or more, and leave training "
                f"text beside data.val_fraction={self.val_fraction}; type for example "
                "data.test_fraction=0.05, or 0 for no test text"
            )
        if self.separator is not None:
            read = ESCAPE.sub(lambda found: ESCAPES[found[1]], self.separator)
            object.__setattr__(self, "separator", read)
        if self.separator == "":
            raise InputError("data.separator is empty; type data.separator=null for whole files")
        for option in ("max_documents", "max_bytes"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise InputError(
                    f"data.{option}={value} must be at least 1; type data.{option}=null for all "
                    "there is"
                )
        self._check_read()
        self._check_task()
        self._check_source()
        self._check_division()

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts the corpus is divided into, of `PARTS`."""
        tested = self.task.test_largest if self.is_task else self.test_fraction
        return tuple(part for part in PARTS if part != "test" or tested)

    @property
    def is_task(self) -> bool:
        """Whether it is a synthetic task, in which only answers are targets."""
        return self.name in TASKS

    @property
    def has_text(self) -> bool:
        """Whether there is text, which a tokenizer can encode and which has documents."""
        return self.name != "tokens" and not self.is_task

    @property
    def divided(self) -> bool:
        """Whether the corpus comes with validation text of its own."""
        return not self.has_text or self.val_split is not None

    @property
    def drawn_by(self) -> dict[str, Any]:
        """What says how validation text is drawn, where it is not at its default: the defaults.

        Of a corpus with validation text of its own the seed still draws the test text.
        """
        default = {field.name: field.default for field in dataclasses.fields(DataConfig)}
        options = ("val_fraction", "split", *(() if self.test_fraction else ("split_seed",)))
        return {name: default[name] for name in options if getattr(self, name) != default[name]}

    def _check_read(self) -> None:
        for option in _STREAMED:
            value = getattr(self, option)
            if value is not None and option not in CORPORA[self.name]:
                reader = next(name for name in CORPORA if option in CORPORA[name])
                raise InputError(
                    f"data.{option}={value!r} is not read by data={self.name}; "
                    f"type data={reader} to use it"
                )

    def _check_task(self) -> None:
        if self.is_task:
            return self.task.check(self.name)
        for option, value in vars(self.task).items():
            if value != getattr(TaskConfig(), option):
                raise InputError(
                    f"data.task.{option}={value} is not read by data={self.name}; type "
                    f"data={' or data='.join(TASKS)} to use it"
                )

    def _check_source(self) -> None:
        if self.name in ("text", "tokens") and not self.path:
            what = "a file, a folder or a glob" if self.name == "text" else "a folder of .bin files"
            raise InputError(f"data={self.name} has no data.path; type data.path= and {what}")
        if self.name in STREAMED and not (self.path or self.dataset):
            raise InputError(
                f"data={self.name} has no data.dataset; type data.dataset= and its name on "
                "the Hugging Face hub, or data.path= and a folder with a copy of it"
            )
        if self.path and self.revision:
            raise InputError(
                f"data.revision={self.revision!r} is not read from a folder, which is what it is; "
                "type data.revision=null, or data.path=null to download that revision"
            )

    def _check_division(self) -> None:
        if self.test_fraction and not self.has_text:
            raise InputError(
                f"data.test_fraction={self.test_fraction} cannot be cut from data={self.name}, "
                "whose documents are not known; type data.test_fraction=0"
                + (", and data.task.test_largest= for a test" if self.is_task else "")
            )
        for option, default in self.drawn_by.items() if self.divided else ():
            raise InputError(
                f"data.{option}={getattr(self, option)!r} is not read, since the corpus has "
                f"validation text of its own; type data.{option}={default}"
                + (", or data.val_split=null to draw it" if self.has_text else "")
            )
        if self.name not in STREAMED:
            return
        if self.separator is not None and set("\r\n") & set(self.separator):
            raise InputError(
                f"data.separator={self.separator!r} has line breaks, but the files of "
                f"data={self.name} are read line by line; type data=text to cut there"
            )
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


def check_pair(data: DataConfig, tokenizer: Choice) -> None:
    """Raise `InputError` where the tokenizer cannot serve the corpus."""
    if data.is_task != (tokenizer.name == "symbols"):
        raise InputError(
            f"tokenizer={tokenizer.name} does not go with data={data.name}; type "
            f"tokenizer={'symbols' if data.is_task else 'bpe'}."
        )
    if data.is_task:
        return
    kind: Any = component("tokenizer", tokenizer.name).build
    if data.name == "tokens" and kind.learns_from_text:
        raise InputError(
            f"tokenizer={tokenizer.name} learns from text, which data=tokens does not have; type "
            "tokenizer=none tokenizer.vocab_size=50257, or tokenizer=gpt2 if GPT-2's tokenizer "
            "made the tokens."
        )
    if data.name != "tokens" and tokenizer.name == "none":
        raise InputError(
            f"tokenizer=none cannot encode the text of data={data.name}; type tokenizer=bpe."
        )
    seed = getattr(tokenizer.options, "sample_seed", 0)
    if data.name in STREAMED and seed:
        raise InputError(
            f"tokenizer.sample_seed={seed} draws nothing from data={data.name}, whose vocabulary "
            "is trained on its beginning; type tokenizer.sample_seed=0."
        )
