"""Token stores: the token ids of one split in a memory-mapped file with a header."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lm_experiments.data.batches import EvaluationBatches, TrainingBatches, windows
from lm_experiments.data.file_cache import Facts, cached_scan
from lm_experiments.data.tokenizers.base import Ids, Tokenizer
from lm_experiments.data.tokens import ShardedTokens, Tokens
from lm_experiments.errors import InputError
from lm_experiments.rundir.words import counted, size

MAGIC = b"LMTOKENS"
VERSION = 2
HEADER_BYTES = 1024
# Tokens per read when a store is checked, since it may be larger than memory.
CHUNK_TOKENS = 1 << 24

DTYPES: dict[str, np.dtype[np.unsignedinteger[Any]]] = {
    "uint16": np.dtype(np.uint16).newbyteorder("<"),
    "uint32": np.dtype(np.uint32).newbyteorder("<"),
}


@dataclass(frozen=True)
class TokenStore:
    """The tokens of all documents in order, each document followed by one end-of-text token.

    `tokens` has shape (token count,) and type uint16 or uint32. `altered` is
    how many documents of held-out text do not come back from their tokens. `bytes` is the number of
    UTF-8 bytes of the text, None if some documents do not come back. `bytes` and `documents` are
    None if they are not known, as for the token files of other projects.
    """

    path: Path
    tokens: Tokens | ShardedTokens
    documents: int | None
    bytes: int | None
    vocab_size: int
    tokenizer_fingerprint: str
    altered: int

    @property
    def positions(self) -> int:
        """The targets that a whole pass goes through."""
        return len(self.tokens) - 1

    @property
    def description(self) -> str:
        """Its sizes in words."""
        words = [f"{len(self.tokens):,} tokens"]
        if self.documents is not None:
            words.append(counted(self.documents, "document"))
        if self.bytes is not None:
            words.append(f"{self.bytes:,} bytes of text ({size(self.bytes)})")
        return ", ".join(words)

    def length(self, context_length: int) -> int:
        """Return the length of its windows."""
        return context_length

    def check(self, context_length: int) -> None:
        """Raise `InputError` unless a training window can be cut from it."""
        windows(len(self.tokens), context_length)

    def training(self, context_length: int, batch_size: int, seed: int) -> TrainingBatches:
        """Return its windows, shuffled, without end."""
        return TrainingBatches(self.tokens, context_length, batch_size, seed)

    def once(
        self,
        context_length: int,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        most: int | None = None,
    ) -> EvaluationBatches:
        """Return its windows in order, once."""
        return EvaluationBatches(self.tokens, context_length, batch_size, rank, world_size, most)

    @classmethod
    def open(
        cls, path: Path, tokenizer_fingerprint: str | None = None, cache_dir: Path | None = None
    ) -> TokenStore:
        """Memory-map a store; raises `InputError` if it is damaged or of another tokenizer.

        The whole file is read for its checksum, at about 1 GB/s; with a `cache_dir` once, until its
        size, time or inode changes. That finds files that were cut off, copied wrongly or edited;
        bits that a disk loses later are found only without the record, in ``scans`` there.
        """
        header = _read_header(path)
        found = header["tokenizer_fingerprint"]
        if tokenizer_fingerprint not in (None, found):
            raise InputError(
                f"{path} was encoded by tokenizer {found} and not by {tokenizer_fingerprint}; "
                "prepare the data again"
            )
        dtype, count = DTYPES[header["dtype"]], header["tokens"]
        expected, actual = HEADER_BYTES + count * dtype.itemsize, path.stat().st_size
        if actual != expected:
            raise InputError(
                f"{path} has {actual} bytes, but its header says {expected}; prepare the data again"
            )
        tokens = np.memmap(path, dtype=dtype, mode="r", offset=HEADER_BYTES, shape=(count,))

        def _scan(_: Path) -> Facts:
            return {"crc32": _crc(np.array_split(tokens, 1 + count // CHUNK_TOKENS))}

        facts = cached_scan(path, "tokens", _scan, cache_dir) if cache_dir else _scan(path)
        if _checksum(header, facts["crc32"]) != header["crc32"]:
            raise InputError(f"{path} has a wrong checksum; prepare the data again")
        fields = ("documents", "vocab_size", "tokenizer_fingerprint")
        # Those of earlier versions are of exact tokenizers.
        altered = header.get("altered", 0)
        known = {field: header[field] for field in fields}
        size = None if altered else header["bytes"]
        return cls(path, tokens, bytes=size, altered=altered, **known)


class StoreWriter:
    """Write a token store atomically: the file exists only if the `with` block succeeds."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self._tokenizer = tokenizer
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        self._dtype = "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"
        self._counts = {"tokens": 0, "documents": 0, "bytes": 0, "altered": 0}
        self._checksum = 0

    def __enter__(self) -> StoreWriter:
        self._file = self._partial.open("wb")
        self._file.write(bytes(HEADER_BYTES))
        return self

    def add(self, ids: Ids, size: int) -> None:
        """Add a document: its ids without the end of text, and its number of UTF-8 bytes."""
        tokens = np.append(ids, self._tokenizer.end_of_text_id).astype(DTYPES[self._dtype])
        self._checksum = _crc([tokens], self._checksum)
        self._file.write(tokens.tobytes())
        self._counts["tokens"] += len(ids) + 1
        self._counts["documents"] += 1
        self._counts["bytes"] += size

    def add_altered(self, count: int) -> None:
        """Count documents whose text does not come back from their ids."""
        self._counts["altered"] += count

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the header and rename the file, or remove it after an error."""
        try:
            with self._file:
                if kind is None:
                    self._finish()
            if kind is None:
                self._partial.replace(self.path)
        finally:
            self._partial.unlink(missing_ok=True)

    def _finish(self) -> None:
        header: dict[str, Any] = {"version": VERSION, "dtype": self._dtype, **self._counts}
        header["vocab_size"] = self._tokenizer.vocab_size
        header["tokenizer_fingerprint"] = self._tokenizer.fingerprint
        header["crc32"] = _checksum(header, self._checksum)
        # The magic number is written last, so that an incomplete file is never a valid store.
        self._file.seek(0)
        self._file.write((MAGIC + json.dumps(header).encode()).ljust(HEADER_BYTES))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.header = header


def _crc(parts: Iterable[Tokens], start: int = 0) -> int:
    """Return the CRC-32 of tokens, continued from `start`."""
    for part in parts:
        start = zlib.crc32(part.data if part.size else b"", start)
    return start


def _checksum(header: Mapping[str, Any], tokens: int) -> int:
    """Return the checksum of a store: the CRC-32 of its tokens, continued over its header."""
    fields = {key: value for key, value in header.items() if key != "crc32"}
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode(), tokens)


def _read_header(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            start = file.read(HEADER_BYTES)
    except OSError as error:
        raise InputError(f"{path} cannot be read as a token store: {error.strerror}") from error
    if not start.startswith(MAGIC):
        raise InputError(f"{path} is not a token store; prepare the data again")
    try:
        header: dict[str, Any] = json.loads(start[len(MAGIC) :])
        if header["version"] != VERSION:
            raise ValueError(f"version {header['version']} instead of {VERSION}")
        if header["dtype"] not in DTYPES:
            raise ValueError(f"type {header['dtype']!r} instead of {', '.join(DTYPES)}")
        for name in ("tokens", "documents", "bytes", "vocab_size", "crc32"):
            if not isinstance(header[name], int) or header[name] < 0:
                raise ValueError(f"{name} is {header[name]!r}")
        if not isinstance(header["tokenizer_fingerprint"], str):
            raise TypeError("no tokenizer fingerprint")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} has a damaged header ({error}); prepare the data again"
        ) from error
    return header
