"""Stream the documents of a dataset from the Hugging Face hub or a folder, with `datasets`."""

from __future__ import annotations

import hashlib
import itertools
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm_experiments.data.config import DataConfig
from lm_experiments.data.file_cache import cached_scan, content_sha256
from lm_experiments.data.files import is_hidden, warn_uncut
from lm_experiments.data.hashing import hash_of
from lm_experiments.data.lfs import check_pulled
from lm_experiments.data.tokenizers.base import END_OF_TEXT
from lm_experiments.errors import InputError

BATCH_ROWS = 1000
TRAIN, COLUMN = "train", "text"
VALIDATION = ("validation", "valid", "val", "dev")
PLAIN_SUFFIXES = (".txt", ".jsonl", ".json")
PARQUET = ".parquet"
# A title of WikiText; those of sections have more signs.
TITLE = re.compile(r" = [^=].* = \n?")
# The packages by which fsspec reads compressed files, where Python alone does not.
UNPACKERS = {"zstd": "zstandard", "lz4": "lz4", "snappy": "python-snappy"}
WITHOUT_NETWORK = "python scripts/prepare_data.py prepares it where there is a network"

logger = logging.getLogger(__name__)


def source_key(config: DataConfig, cache_dir: Path) -> str:
    """Return a hash of everything that determines the text: options and files of a folder.

    A dataset of the hub is identified by name and revision. Without a revision it is the version
    that was newest when it was prepared, so that no network is needed to find it again.
    """
    options = {key: value for key, value in asdict(config).items() if value is not None}
    if not config.test_fraction:
        # So that folders are found that were prepared before there was this option.
        del options["test_fraction"]
    path = options.pop("path", None)
    if path is None:
        return hash_of({"options": options})
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InputError(
            f"data.path={config.path} is not a folder; type the folder of a copy of the dataset"
        )
    below = [file for file in folder.rglob("*") if file.is_file()]
    files = [file for file in below if not is_hidden(file.relative_to(folder))]
    if not files:
        raise InputError(f"data.path={config.path} holds no file; type a folder with a dataset")
    hashes = {
        file.relative_to(folder).as_posix(): cached_scan(file, "file", content_sha256, cache_dir)
        for file in sorted(files)
    }
    return hash_of({"options": options, "files": hashes})


class Dataset:
    """An opened dataset, whose documents are read in batches."""

    def __init__(self, config: DataConfig, cache_dir: Path) -> None:
        """Find the files; raises `InputError` if `datasets`, the dataset or a split is missing.

        The metadata cache of `datasets` is below `cache_dir`; the text is not cached.
        """
        self.config = config
        self._metadata = str(cache_dir / "datasets")
        self._where = str(Path(config.path).expanduser() if config.path else config.dataset)
        self._builder = self._open()
        # In plain text files each row is a line, not a document.
        self._has_lines = hasattr(self._builder.config, "sample_by")
        self._check_splits()
        if config.path:
            for split in self.splits:
                for file in self.files(split):
                    check_pulled(Path(file))

    @property
    def splits(self) -> list[str]:
        """The training split, and the validation split if there is one."""
        names = [self.config.train_split or TRAIN, self.config.val_split]
        return [name for name in names if name is not None]

    def files(self, split: str) -> list[str]:
        """Return the files of a split; on the hub their URLs contain the commit."""
        return [str(file) for file in self._builder.config.data_files[split]]

    def documents(self, split: str) -> Iterator[str]:
        """Yield the non-blank documents of a split, within `max_documents` and `max_bytes`.

        Raises `InputError` if a row is not text, or the dataset can no longer be read.
        """
        texts: Iterable[str] = self._rows(split)
        if self.config.name == "wikitext103":
            texts = articles(texts)
        if self._has_lines and self.config.separator is not None:
            texts = cut(texts, self.config.separator, self._where)
        not_blank = (text for text in texts if text.strip())
        return limited(not_blank, self.config.max_documents, self.config.max_bytes)

    def expected_bytes(self, split: str) -> int | None:
        """Return an estimate of the bytes of text of a split, None if unknown."""
        if self.config.max_documents is not None:
            return self.config.max_bytes
        known = [size for size in (self.config.max_bytes, self._file_bytes(split)) if size]
        return min(known, default=None)

    def _rows(self, split: str) -> Iterator[str]:
        column = self.config.text_column or COLUMN
        with self._explain_errors():
            stream = self._builder.as_streaming_dataset(split=split).with_format("arrow")
            for table in stream.iter(batch_size=BATCH_ROWS):
                if column not in table.column_names:
                    raise InputError(
                        f"data.text_column={column} is not a column of {self._where}, which has "
                        f"{', '.join(table.column_names)}; type data.text_column= and one of them"
                    )
                for value in table.column(column).to_pylist():
                    if value is not None and not isinstance(value, str):
                        raise InputError(
                            f"data.text_column={column} of {self._where} holds "
                            f"{type(value).__name__} and not text; type data.text_column= and a "
                            "column of text"
                        )
                    yield value or ""

    def _file_bytes(self, split: str) -> int | None:
        import fsspec

        try:
            placed = [fsspec.core.url_to_fs(file) for file in self.files(split)]
            sizes = [int(file_system.size(path)) for file_system, path in placed]
            if all(path.endswith(PLAIN_SUFFIXES) for _, path in placed):
                return sum(sizes)
            if all(path.endswith(PARQUET) for _, path in placed):
                with placed[0][0].open(placed[0][1]) as first:
                    share = parquet_text_bytes(first, self.config.text_column or COLUMN)
                return round(share / sizes[0] * sum(sizes))
        except Exception as error:  # an estimate is optional
            logger.info("the size of %s is unknown: %s", self._where, error)
        return None

    def _open(self) -> Any:
        config, library = self.config, _library(self.config)
        patterns = {config.train_split or TRAIN: config.train_files}
        if config.val_split is not None:
            patterns[config.val_split] = config.val_files
        named = {split: files for split, files in patterns.items() if files is not None}
        with self._explain_errors():
            is_copy = config.path and config.train_files
            if is_copy and not any([*Path(self._where).glob(files)] for files in named.values()):
                # A folder may be laid out in another way than the hub.
                logger.warning(
                    "%s has no %s; its files are taken as they are laid out",
                    self._where,
                    " nor ".join(named.values()),
                )
                named = {}
            builder = library.load_dataset_builder(
                self._where,
                name=None if config.path else config.subset,
                data_files=named or None,
                revision=config.revision,
                cache_dir=self._metadata,
            )
        if config.dataset and config.path and hasattr(builder.config, "sample_by") and not named:
            files = [Path(file).name for of in builder.config.data_files.values() for file in of]
            raise InputError(
                f"data.path={config.path} is no copy of {config.dataset} as it lies on the hub, "
                f"but holds the text files {', '.join(files[:6])}; type data.train_files= and "
                "data.val_files= with the names of those to read, data.val_split=validation, "
                "data.val_fraction=0.1 (its default, as it is not read) and "
                f"'data.separator=\"{END_OF_TEXT}\"', or what stands between their documents"
            )
        return builder

    def _check_splits(self) -> None:
        known = list(self._builder.config.data_files or ())
        for option, name in (("train_split", self.splits[0]), ("val_split", self.splits[-1])):
            if name not in known:
                raise InputError(
                    f"data.{option}={name} is not a split of {self._where}, which has "
                    f"{', '.join(map(str, known))}; type data.{option}= and one of them"
                    + (", or data.val_split=null to draw it" if option == "val_split" else "")
                )
        others = sorted({*known} & {*VALIDATION} - {*self.splits})
        if self.config.val_split is None and others:
            # What says how to draw validation text would be refused beside it.
            reset = [f"data.{key}={default}" for key, default in self.config.drawn_by.items()]
            logger.warning(
                "%s has a split %s, which is not read: validation text is drawn from the "
                "training split; type %s to take it",
                self._where,
                others[0],
                " ".join([f"data.val_split={others[0]}", *reset]),
            )

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn any error into an `InputError`: each file system and format has its own types."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            if missing := [name for name in UNPACKERS if f"type {name} not supported" in reason]:
                raise InputError(
                    f"{self._where} is compressed with {missing[0]}, and what reads it is not "
                    f"installed; type pip install {UNPACKERS[missing[0]]}, or unpack it."
                ) from error
            remedy = f"type data.path= and a folder with a copy of it; {WITHOUT_NETWORK}"
            if self.config.path:
                remedy = f"type data.path= and a folder that data.name={self.config.name} can read"
            raise InputError(
                f"{self._where} cannot be read as a dataset ({reason}); {remedy}"
            ) from error


def joined(name: str, splits: Iterable[str]) -> str:
    """Return the whole text of a small dataset of the hub; raises `InputError` if unreadable."""
    with tempfile.TemporaryDirectory() as folder:
        config = DataConfig("hf", dataset=name, val_split=VALIDATION[0])
        dataset = Dataset(config, Path(folder))
        return "".join(text for split in splits for text in dataset.documents(split))


def articles(rows: Iterable[str]) -> Iterator[str]:
    """Join the rows of WikiText, one line or none each, into articles, which begin at a title."""
    article: list[str] = []
    for row in rows:
        if TITLE.fullmatch(row):
            yield "".join(article)
            article.clear()
        article.append(row)
    yield "".join(article)


def cut(lines: Iterable[str], separator: str, where: str) -> Iterator[str]:
    """Split lines of text into documents at a separator, without the line breaks around it.

    A separator that is not found in the text of `where` is warned of.
    """
    document: list[str] = []
    is_found = False
    for line in lines:
        *ends, rest = line.split(separator)
        is_found = is_found or bool(ends)
        for end in ends:
            yield "\n".join([*document, end]).strip("\r\n")
            document.clear()
        document.append(rest)
    if not is_found:
        warn_uncut(separator, where)
    yield "\n".join(document).strip("\r\n")


def limited(
    texts: Iterable[str], max_documents: int | None, max_bytes: int | None
) -> Iterator[str]:
    """Yield whole texts until the next would exceed a limit."""
    size = 0
    for text in itertools.islice(texts, max_documents):
        size += len(text.encode())
        if max_bytes is not None and size > max_bytes:
            return
        yield text


def part_of(text: str, config: DataConfig) -> str:
    """Return the part of a training split's document, by its text: duplicates stay together."""
    digest = hashlib.sha256(f"{config.split_seed}\n{text}".encode()).digest()
    drawn = int.from_bytes(digest[:8], "little")
    for_validation = 0.0 if config.divided else config.val_fraction
    if drawn < for_validation * 2**64:
        return "val"
    return "test" if drawn < (for_validation + config.test_fraction) * 2**64 else "train"


def parquet_text_bytes(file: Any, column: str) -> int:
    """Return the uncompressed bytes of a column of a Parquet file, from its metadata."""
    from pyarrow import parquet

    metadata = parquet.ParquetFile(file).metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
    return sum(int(c.total_uncompressed_size) for c in chunks if c.path_in_schema == column)


def _library(config: DataConfig) -> Any:
    try:
        import datasets
    except ImportError:
        raise InputError(
            f"data={config.name} needs the package datasets, which is not installed; "
            "type pip install 'lm_experiments[hf]'"
        ) from None
    datasets.disable_progress_bars()
    return datasets
