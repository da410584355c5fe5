"""Token stores: round trips, and damaged files are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lm_experiments.data import TokenStore, store, train_tokenizer
from lm_experiments.data.store import HEADER_BYTES, MAGIC, StoreWriter
from lm_experiments.data.tokenizers import Ids, Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.registry import choose

TEXTS = ["one two", "é"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, choose("tokenizer", "bytes"))


def write_store(path: Path, documents: Iterable[tuple[Ids, int]], tokenizer: Tokenizer) -> None:
    """Write a store of documents, each given by its ids and its number of UTF-8 bytes."""
    with StoreWriter(path, tokenizer) as writer:
        for ids, size in documents:
            writer.add(ids, size)


@pytest.fixture
def path(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    documents = [(tokenizer.encode(text), len(text.encode())) for text in TEXTS]
    write_store(tmp_path / "train.bin", documents, tokenizer)
    return tmp_path / "train.bin"


def test_a_store_comes_back(path: Path, tokenizer: Tokenizer) -> None:
    opened = TokenStore.open(path, tokenizer.fingerprint)
    assert isinstance(opened.tokens, np.memmap)
    assert not opened.tokens.flags.writeable
    assert opened.tokens.dtype == np.uint16
    assert opened.tokens.tolist() == [*b"one two", 256, *"é".encode(), 256]
    assert (opened.documents, opened.bytes, opened.vocab_size, opened.altered) == (2, 9, 257, 0)
    assert TokenStore.open(path).tokenizer_fingerprint == tokenizer.fingerprint
    assert [file.name for file in path.parent.iterdir()] == ["train.bin"]


def test_a_large_vocabulary_takes_32_bits(tmp_path: Path) -> None:
    characters = "".join(map(chr, range(0x10000, 0x20000)))
    tokenizer = train_tokenizer([characters], choose("tokenizer", "chars"))
    ids = tokenizer.encode(characters[-1] + "a")
    write_store(tmp_path / "train.bin", [(ids, 5)], tokenizer)
    opened = TokenStore.open(tmp_path / "train.bin")
    assert opened.tokens.dtype == np.uint32
    assert opened.tokens.tolist() == [65_535, 65_536, 65_537]


def test_another_tokenizer_is_refused_and_both_are_named(path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError) as caught:
        TokenStore.open(path, "f" * 64)
    assert tokenizer.fingerprint in str(caught.value)
    assert "f" * 64 in str(caught.value)


@pytest.mark.parametrize("change", [-1, 1, -22])
def test_another_length_is_refused(path: Path, change: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:change] if change < 0 else content + b"x")
    with pytest.raises(InputError, match=rf"{1046 + change} bytes, but its header says 1046"):
        TokenStore.open(path)


@pytest.mark.parametrize("content", [b"", b"LMTOKEN", b"x" * 2000, bytes(2000)])
def test_another_file_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"train\.bin is not a token store"):
        TokenStore.open(path)


@pytest.mark.parametrize(
    "change",
    [{"version": 1}, {"dtype": "int8"}, {"tokens": -1}, {"bytes": "9"}, {"documents": None}],
)
def test_a_damaged_header_is_refused(path: Path, change: dict[str, object]) -> None:
    content = path.read_bytes()
    header = json.loads(content[len(MAGIC) : HEADER_BYTES]) | change
    start = (MAGIC + json.dumps(header).encode()).ljust(HEADER_BYTES)
    path.write_bytes(start + content[HEADER_BYTES:])
    with pytest.raises(InputError, match="damaged header"):
        TokenStore.open(path)


def test_a_header_that_is_not_json_is_refused(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(MAGIC) + 5] = 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged header"):
        TokenStore.open(path)


def test_a_missing_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as a token store"):
        TokenStore.open(tmp_path / "none.bin")


def test_a_failed_write_leaves_the_old_store(path: Path, tokenizer: Tokenizer) -> None:
    def failing() -> Iterator[tuple[Ids, int]]:
        yield tokenizer.encode("half"), 4
        raise RuntimeError("killed")

    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="killed"):
        write_store(path, failing(), tokenizer)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["train.bin"]


def test_a_store_is_read_once_until_its_file_is_another(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, crc = [], store._crc
    monkeypatch.setattr(store, "_crc", lambda parts: reads.append(path) or crc(parts))
    cache = tmp_path / "cache"
    for _ in range(3):
        assert len(TokenStore.open(path, cache_dir=cache).tokens) == 11
    assert len(reads) == 1
    TokenStore.open(path)
    assert len(reads) == 2

    before, content = path.stat(), path.read_bytes()
    copy = path.with_name("copy")
    copy.write_bytes(content[:-1] + b"\xff")
    copy.replace(path)
    # Of the same size and time, and another file.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError, match="wrong checksum"):
        TokenStore.open(path, cache_dir=cache)
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert len(TokenStore.open(path, cache_dir=cache).tokens) == 11


def test_without_a_place_for_the_record_a_store_is_read_each_time(path: Path) -> None:
    for _ in range(2):
        assert len(TokenStore.open(path, cache_dir=path / "no folder").tokens) == 11
