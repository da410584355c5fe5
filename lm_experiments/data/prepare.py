"""Prepare a corpus once: split, tokenizer and token stores in one cached folder."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from lm_experiments.data.config import PARTS, STREAMED, DataConfig, check_pair
from lm_experiments.data.corpora import content_hash
from lm_experiments.data.encode_corpus import (
    encode_in_memory,
    encode_stream,
    recorded,
)
from lm_experiments.data.hashing import hash_of
from lm_experiments.data.hub import source_key
from lm_experiments.data.overlap import Overlap
from lm_experiments.data.problems import OVERLAP, Problems, task_hash
from lm_experiments.data.sources import Source
from lm_experiments.data.store import VERSION, TokenStore
from lm_experiments.data.tasks import TASKS
from lm_experiments.data.token_files import open_token_files
from lm_experiments.data.tokenizers import (
    SymbolTokenizer,
    Tokenizer,
    files_hash,
    is_exact,
    load_tokenizer,
    train_tokenizer,
)
from lm_experiments.errors import InputError
from lm_experiments.fields import fields_of
from lm_experiments.registry import Choice, options_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedData:
    """Each part, a token store or the problems of a task, with the tokenizer of its ids.

    `test` is None where no test text is asked for. `data_hash` is the content hash of the corpus.
    `directory` is the cached folder, for `data=tokens` the folder of the token files, and the cache
    itself for a task, which keeps nothing. `overlaps` says what of a held-out part occurs in
    training, by the part's name; it lacks parts of which it is not known.
    """

    train: Source
    val: Source
    tokenizer: Tokenizer
    data_hash: str
    directory: Path
    overlaps: Mapping[str, Overlap | str] = field(default_factory=dict)
    test: Source | None = None

    @property
    def held_out(self) -> dict[str, Source]:
        """The parts that are not trained on, by name."""
        stores = {"val": self.val, "test": self.test}
        return {part: store for part, store in stores.items() if store is not None}


def prepare(data: DataConfig, tokenizer: Choice, cache_dir: Path) -> PreparedData:
    """Return the prepared corpus, building its folder below `cache_dir` where there is none.

    Concurrent processes build it once. A damaged folder is built again, with a warning. Raises
    `InputError` if the text cannot be read, split or encoded.
    """
    check_pair(data, tokenizer)
    if data.is_task:
        return _problems(data, cache_dir)
    if data.name == "tokens":
        built = train_tokenizer((), tokenizer)
        train, val, tokens_hash = open_token_files(data, built, cache_dir)
        return PreparedData(train, val, built, tokens_hash, train.path.parent)
    key = source_key(data, cache_dir) if data.name in STREAMED else content_hash(data)
    options = options_of("tokenizer", tokenizer)
    known = [field.name for field in fields_of(options.__class__) if field.use.in_hash]
    chosen = {name: getattr(options, name) for name in known}
    chosen |= {"name": tokenizer.name, "files": files_hash(tokenizer)}
    if not is_exact(tokenizer):
        # Folders of earlier versions do not say what is lost.
        chosen["altered"] = True
    folder_key = hash_of({"data": key, "tokenizer": chosen, "store": VERSION})
    directory = cache_dir / f"{data.name}-{tokenizer.name}-{folder_key[:12]}"
    prepared = _reuse(directory, data.parts)
    if prepared is None:
        _make_writable(cache_dir)
        # Whoever may write to the folder may take the lock, as a group may share a cache; whoever
        # may not read the folder need not read the lock.
        mode = 0o600 | (cache_dir.stat().st_mode & 0o066)
        with _held(FileLock(cache_dir / f"{directory.name}.lock", mode=mode)):
            prepared = _reuse(directory, data.parts)
            if prepared is None:
                _build(data, tokenizer, directory, key)
                prepared = _open(directory, data.parts)
    for part, store in prepared.held_out.items():
        if isinstance(store, TokenStore) and store.altered:
            logger.warning(
                "%d of %d %s documents do not come back from their tokens, since tokenizer=%s "
                "changes text or lacks characters; what is lost costs no bits, so bits per byte "
                "stay empty",
                store.altered,
                store.documents,
                PARTS[part],
                tokenizer.name,
            )
    return prepared


def _problems(data: DataConfig, cache_dir: Path) -> PreparedData:
    parts = {part: Problems(data.name, data.task, part) for part in data.parts}
    return PreparedData(
        **parts,
        tokenizer=SymbolTokenizer(TASKS[data.name](data.task).ids),
        data_hash=task_hash(data.name, data.task),
        directory=cache_dir,
        overlaps=dict.fromkeys(parts, OVERLAP),
    )


def _make_writable(cache_dir: Path) -> None:
    """Make the cache folder; `InputError` where it cannot be written, as in a home on no disk."""
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=cache_dir).close()
    except OSError as error:
        raise InputError(
            f"{cache_dir} cannot hold prepared corpora ({error.strerror}); type cache_dir=... and "
            "a folder that can be written"
        ) from error


def _held(lock: FileLock) -> FileLock:
    """Acquire a lock, with a log line if it must wait; its `with` block releases it."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("waiting for another process to prepare %s", lock.lock_file)
        lock.acquire()
    return lock


def _reuse(directory: Path, parts: Sequence[str]) -> PreparedData | None:
    if not directory.exists():
        return None
    try:
        return _open(directory, parts)
    except InputError as error:
        logger.warning("the prepared data is damaged and is built again: %s", error)
        return None


def _open(directory: Path, parts: Sequence[str]) -> PreparedData:
    tokenizer = load_tokenizer(directory / "tokenizer.json")
    stores = {
        part: TokenStore.open(directory / f"{part}.bin", tokenizer.fingerprint, directory.parent)
        for part in parts
    }
    data_hash, overlaps = recorded(directory)
    return PreparedData(
        **stores, tokenizer=tokenizer, data_hash=data_hash, directory=directory, overlaps=overlaps
    )


def _build(data: DataConfig, config: Choice, directory: Path, key: str) -> None:
    """Build in a temporary folder, then rename, so that a killed process leaves no partial one."""
    logger.info("preparing %s", directory)
    # The lock is held, so other temporary folders are left over from killed processes.
    prefix = f".{directory.name}.partial-"
    for leftover in directory.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover)
    partial = directory.with_name(f"{prefix}{os.getpid()}")
    partial.mkdir()
    try:
        if data.name in STREAMED:
            encode_stream(partial, data, config, key, cache_dir=directory.parent)
        else:
            encode_in_memory(partial, data, config, key)
        if directory.exists():
            shutil.rmtree(directory)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
