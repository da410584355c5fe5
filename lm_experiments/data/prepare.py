"""Prepares a corpus once: text, split, tokenizer and token stores in one cached folder."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lm_experiments.data.config import DataConfig, DataError, TokenizerConfig
from lm_experiments.data.corpora import check_unchanged, content_hash, load_documents
from lm_experiments.data.keys import hash_of
from lm_experiments.data.split import split_documents
from lm_experiments.data.store import VERSION, TokenStore, write_store
from lm_experiments.data.tokenizers import (
    Ids,
    Tokenizer,
    grouped,
    load_tokenizer,
    train_tokenizer,
)

SPLIT_NAMES = ("train", "val")
BATCH_DOCUMENTS = 1000
BATCH_CHARACTERS = 1 << 24

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedData:
    """Both token stores with the tokenizer that encoded them.

    `data_hash` is the corpus's content hash, and `directory` the cached folder.
    """

    train: TokenStore
    val: TokenStore
    tokenizer: Tokenizer
    data_hash: str
    directory: Path


def prepare(data: DataConfig, tokenizer: TokenizerConfig, cache_dir: Path) -> PreparedData:
    """Return the prepared corpus, building its folder below `cache_dir` where there is none.

    Processes that ask at once build it once. A damaged folder is built again, with a warning.
    Raises `DataError` where text, split or vocabulary cannot be had.
    """
    data_hash = content_hash(data)
    directory = cache_dir / _folder_name(data, tokenizer, data_hash)
    prepared = _reuse(directory, data_hash)
    if prepared is None:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _held(FileLock(cache_dir / f"{directory.name}.lock")):
            prepared = _reuse(directory, data_hash) or _build(data, tokenizer, directory, data_hash)
    _warn_of_unknown(prepared)
    return prepared


def _folder_name(data: DataConfig, tokenizer: TokenizerConfig, data_hash: str) -> str:
    key = hash_of({"data": data_hash, "tokenizer": asdict(tokenizer), "store": VERSION})
    return f"{data.name}-{tokenizer.name}-{key[:12]}"


def _held(lock: FileLock) -> FileLock:
    """Acquire a lock, telling of a wait; leaving its `with` block releases it."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("waiting for another process to prepare %s", lock.lock_file)
        lock.acquire()
    return lock


def _reuse(directory: Path, data_hash: str) -> PreparedData | None:
    if not directory.exists():
        return None
    try:
        return _open(directory, data_hash)
    except DataError as error:
        logger.warning("the prepared data is damaged and is built again: %s", error)
        return None


def _open(directory: Path, data_hash: str) -> PreparedData:
    tokenizer = load_tokenizer(directory / "tokenizer.json")
    train, val = (
        TokenStore.open(directory / f"{name}.bin", tokenizer.fingerprint) for name in SPLIT_NAMES
    )
    return PreparedData(train, val, tokenizer, data_hash, directory)


def _build(
    data: DataConfig, config: TokenizerConfig, directory: Path, data_hash: str
) -> PreparedData:
    """Build beside `directory`, then rename, so that a kill leaves no half of it."""
    logger.info("preparing %s", directory)
    # The lock is held, so another process's temporary folder is one that a kill left behind.
    prefix = f".{directory.name}.partial-"
    for leftover in directory.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover)
    partial = directory.with_name(f"{prefix}{os.getpid()}")
    partial.mkdir()
    try:
        _fill(partial, data, config, data_hash)
        if directory.exists():
            shutil.rmtree(directory)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return _open(directory, data_hash)


def _fill(folder: Path, data: DataConfig, config: TokenizerConfig, data_hash: str) -> None:
    documents = load_documents(data)
    check_unchanged(documents, data, data_hash)
    split = split_documents(documents.texts, data)
    logger.info("training the %s tokenizer on %d documents", config.name, len(split.train))
    tokenizer = train_tokenizer(split.train, config)
    tokenizer.save(folder / "tokenizer.json")
    record: dict[str, Any] = {
        "data": asdict(data),
        "data_hash": data_hash,
        "tokenizer": asdict(config),
    }
    for name, texts in zip(SPLIT_NAMES, (split.train, split.val), strict=True):
        encoded = _encoded(name, texts, tokenizer)
        record[name] = write_store(folder / f"{name}.bin", encoded, tokenizer)
        logger.info("%s: %s", name, record[name])
    (folder / "prepared.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _encoded(name: str, texts: Sequence[str], tokenizer: Tokenizer) -> Iterator[tuple[Ids, int]]:
    done = 0
    for batch in grouped(texts, BATCH_CHARACTERS, BATCH_DOCUMENTS):
        for text, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            yield ids, len(text.encode())
        done += len(batch)
        logger.info("%s: encoded %d of %d documents", name, done, len(texts))


def _warn_of_unknown(prepared: PreparedData) -> None:
    if prepared.val.unknown:
        logger.warning(
            "%d of %d validation tokens are characters that the training text lacks; they are "
            "encoded as unknown, which makes bits per byte too low",
            prepared.val.unknown,
            len(prepared.val.tokens),
        )
