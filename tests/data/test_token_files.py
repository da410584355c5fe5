"""Token files of nanoGPT, llm.c and modded-nanogpt: mapped without a copy, and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lm_experiments.data import (
    DataConfig,
    EvaluationBatches,
    TrainingBatches,
    file_cache,
    prepare,
    token_files,
)
from lm_experiments.data.lfs import POINTER
from lm_experiments.data.prepare import PreparedData
from lm_experiments.data.tokens import ShardedTokens
from lm_experiments.errors import InputError
from lm_experiments.registry import Choice, choose

TOKENS = (np.arange(1000) * 7 % 256).astype("<u2")
VAL = np.frombuffer("The end, my friend. é".encode(), dtype=np.uint8).astype("<u2")
NONE = choose("tokenizer", "none", {"vocab_size": 300})


def raw(path: Path, tokens: NDArray[Any]) -> None:
    tokens.tofile(path)


def headed(path: Path, tokens: NDArray[Any], **changes: int) -> None:
    header = np.zeros(256, dtype="<i4")
    fields = {"magic": 20240520, "version": 1, "count": len(tokens)} | changes
    header[:3] = list(fields.values())
    path.write_bytes(header.tobytes() + tokens.tobytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What nanoGPT's own preparation leaves."""
    (tmp_path / "tokens").mkdir()
    raw(tmp_path / "tokens" / "train.bin", TOKENS)
    raw(tmp_path / "tokens" / "val.bin", VAL)
    return tmp_path / "tokens"


def prepared(folder: Path, tokenizer: Choice = NONE, **options: Any) -> PreparedData:
    config = DataConfig("tokens", str(folder), **options)
    return prepare(config, tokenizer, folder.parent / "cache")


def is_mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def test_raw_files_of_nanogpt_are_mapped(folder: Path) -> None:
    data = prepared(folder)
    assert data.train.tokens[:].tolist() == TOKENS.tolist()
    assert data.val.tokens[:].tolist() == VAL.tolist()
    assert data.train.vocab_size == data.tokenizer.vocab_size == 300
    assert data.directory == folder
    assert is_mapped(data.train.tokens)
    # What is later written to the file is seen: nothing was copied.
    with (folder / "train.bin").open("r+b") as file:
        file.write(np.array([255], dtype="<u2").tobytes())
    assert data.train.tokens[0:1].tolist() == [255]


def test_files_with_a_header_hold_the_same_tokens(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "headed"
    other.mkdir()
    headed(other / "fineweb_train_000001.bin", TOKENS)
    headed(other / "fineweb_val_000000.bin", VAL)
    data = prepared(other)
    assert data.train.tokens[:].tolist() == TOKENS.tolist()
    assert data.data_hash == prepared(folder).data_hash


def test_shards_are_read_as_one(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "shards"
    other.mkdir()
    for index, part in enumerate(np.split(TOKENS, [100, 117, 600])):
        headed(other / f"fineweb_train_{index:06}.bin", part)
    headed(other / "fineweb_val_000000.bin", VAL)
    shards, whole = prepared(other).train.tokens, prepared(folder).train.tokens
    assert isinstance(shards, ShardedTokens)
    assert is_mapped(shards[10:20])
    batches = [TrainingBatches(tokens, 33, 4, seed=0).batch(3) for tokens in (shards, whole)]
    for one, two in zip(*batches, strict=True):
        assert one.tolist() == two.tolist()
    passes = [list(EvaluationBatches(tokens, 33, 4)) for tokens in (shards, whole)]
    assert str(passes[0]) == str(passes[1])


def test_slices_of_shards_are_those_of_the_whole() -> None:
    shards = ShardedTokens([TOKENS[:3], TOKENS[3:3], TOKENS[3:9], TOKENS[9:20]])
    assert len(shards) == 20
    for start in range(21):
        for stop in range(start, 22):
            assert shards[start:stop].tolist() == TOKENS[:20][start:stop].tolist()


def test_patterns_choose_other_names(folder: Path) -> None:
    (folder / "train.bin").rename(folder / "a.bin")
    (folder / "val.bin").rename(folder / "b.bin")
    with pytest.raises(InputError, match=r"no file \*train\*\.bin; type data\.train_files="):
        prepared(folder)
    data = prepared(folder, train_files="a.bin", val_files="b*")
    assert len(data.train.tokens) == len(TOKENS)


def test_an_id_beyond_the_vocabulary_is_refused(folder: Path) -> None:
    with pytest.raises(
        InputError, match=r"token id 255, but the vocabulary has 255; .*=256 or more"
    ):
        prepared(folder, choose("tokenizer", "none", {"vocab_size": 255}))
    assert (
        prepared(folder, choose("tokenizer", "none", {"vocab_size": 256})).train.vocab_size == 256
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 999}, "holds 1000 tokens, but its header says 999"),
        ({"count": 1001}, "holds 1000 tokens, but its header says 1001"),
        ({"version": 7}, "header version 7, but only version 1"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(
    folder: Path, changes: dict[str, int], message: str
) -> None:
    headed(folder / "train.bin", TOKENS, **changes)
    with pytest.raises(InputError, match=message):
        prepared(folder)


@pytest.mark.parametrize("content", [b"", b"\0\0\0"])
def test_a_file_that_is_no_number_of_tokens_is_refused(folder: Path, content: bytes) -> None:
    (folder / "val.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"val\.bin has \d bytes, which is not a whole number of"):
        prepared(folder)


def test_a_path_that_is_no_folder_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"train\.bin is not a folder"):
        prepared(folder / "train.bin")


def test_a_file_is_scanned_once_while_it_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepared(folder)
    monkeypatch.setattr(token_files, "_scan", lambda path: pytest.fail("the file was scanned"))
    assert prepared(folder).data_hash == first.data_hash
    monkeypatch.undo()
    raw(folder / "train.bin", TOKENS[::-1])
    assert prepared(folder).data_hash != first.data_hash


def test_without_a_tokenizer_bytes_and_text_are_not_made_up(folder: Path) -> None:
    data = prepared(folder)
    assert data.val.bytes is None
    for attempt in (lambda: data.tokenizer.decode([1]), lambda: data.tokenizer.encode("a")):
        with pytest.raises(InputError, match="tokenizer=none has no text"):
            attempt()
    with pytest.raises(InputError, match="tokenizer=none has no text"):
        _ = data.tokenizer.end_of_text_id


def test_a_tokenizer_whose_ids_have_bytes_counts_them(folder: Path) -> None:
    raw(folder / "val.bin", np.append(VAL, 256).astype("<u2"))
    data = prepared(folder, choose("tokenizer", "bytes"))
    assert data.val.bytes == len("The end, my friend. é".encode())
    assert data.tokenizer.decode(data.val.tokens[:]) == "The end, my friend. é<|endoftext|>"


@pytest.mark.parametrize("name", ["bpe", "chars"])
def test_a_tokenizer_that_learns_from_text_is_refused(folder: Path, name: str) -> None:
    config = choose("tokenizer", name, {"vocab_size": 300} if name == "bpe" else {})
    with pytest.raises(InputError, match=f"tokenizer={name} learns from text, which data=tokens"):
        prepared(folder, config)


def test_no_tokenizer_is_for_ready_tokens_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tokenizer=none cannot encode the text of data=kjv"):
        prepare(DataConfig(), NONE, tmp_path)


def test_a_larger_vocabulary_of_the_same_tokens_is_no_other_tokenizer(folder: Path) -> None:
    # A padded vocabulary is compared by loss per token: bits per byte are not known for either.
    larger = prepared(folder, choose("tokenizer", "none", {"vocab_size": 304})).tokenizer
    assert larger.fingerprint == prepared(folder).tokenizer.fingerprint


WIDE = TOKENS.astype("<u4")


@pytest.mark.parametrize("vocab_size", [300, 100_000])
def test_four_byte_ids_are_recognised(folder: Path, vocab_size: int) -> None:
    raw(folder / "val.bin", VAL.astype("<u4"))
    tokens = WIDE if vocab_size == 300 else WIDE + 70_000
    raw(folder / "train.bin", tokens)
    data = prepared(folder, choose("tokenizer", "none", {"vocab_size": vocab_size}))
    assert data.train.tokens[:].tolist() == tokens.tolist()
    assert data.val.tokens[:].tolist() == VAL.tolist()


def test_the_header_of_llm_c_for_llama_3_says_four_bytes(folder: Path) -> None:
    headed(folder / "train.bin", WIDE, magic=20240801, version=7)
    assert prepared(folder).train.tokens[:].tolist() == TOKENS.tolist()
    headed(folder / "train.bin", WIDE, magic=20240801, version=1)
    with pytest.raises(InputError, match="header version 1, but only version 7"):
        prepared(folder)


@pytest.mark.parametrize(
    ("tokens", "vocab_size"), [(TOKENS, 70_000), (TOKENS.astype("<u8"), 300), (-WIDE, 70_000)]
)
def test_ids_of_another_width_are_refused(
    folder: Path, tokens: NDArray[Any], vocab_size: int
) -> None:
    raw(folder / "train.bin", tokens)
    with pytest.raises(
        InputError, match=rf"train\.bin does not hold .* vocabulary of {vocab_size}"
    ):
        prepared(folder, choose("tokenizer", "none", {"vocab_size": vocab_size}))


def test_files_of_other_formats_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three four five six")
    text = DataConfig("text", str(tmp_path / "a.txt"))
    store = prepare(text, choose("tokenizer", "bytes"), tmp_path / "cache").train.path
    for content, message in (
        (store.read_bytes(), "a token store of prepared data"),
        (b"\x93NUMPY" + bytes(300), "a NumPy array"),
        (POINTER + b"v1\noid sha256:1234\n", "a pointer of Git LFS"),
    ):
        (folder / "train.bin").write_bytes(content)
        with pytest.raises(InputError, match=rf"train\.bin is {message}"):
            prepared(folder)


def test_what_was_scanned_is_used_also_where_it_cannot_be_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, content: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(file_cache, "write_atomically", refused)
    assert prepared(folder).train.tokens[:].tolist() == TOKENS.tolist()
