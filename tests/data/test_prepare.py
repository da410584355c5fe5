"""Preparing a corpus once: reuse, repair, and concurrent processes."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lm_experiments.data import DataConfig, corpora
from lm_experiments.data import prepare as prepare_function
from lm_experiments.data.file_cache import FOLDER
from lm_experiments.data.hashing import hash_of
from lm_experiments.data.overlap import PartText
from lm_experiments.data.prepare import PreparedData
from lm_experiments.errors import InputError
from lm_experiments.registry import Choice, choose

BYTES = choose("tokenizer", "bytes")


@pytest.fixture
def data(tmp_path: Path) -> DataConfig:
    (tmp_path / "text.txt").write_text("|".join(f"document {index}" for index in range(40)))
    return DataConfig("text", str(tmp_path / "text.txt"), separator="|")


def prepare(data: DataConfig, tokenizer: Choice, tmp_path: Path) -> PreparedData:
    return prepare_function(data, tokenizer, tmp_path / "cache")


def folders(tmp_path: Path) -> list[str]:
    there = {path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()}
    return sorted(there - {FOLDER})


def test_everything_is_prepared(data: DataConfig, tmp_path: Path) -> None:
    prepared = prepare(data, BYTES, tmp_path)
    assert prepared.train.documents + prepared.val.documents == 40
    assert prepared.data_hash == corpora.content_hash(data)
    assert prepared.directory.name.startswith("text-bytes-")
    assert folders(tmp_path) == [prepared.directory.name]
    val = prepared.tokenizer.decode(prepared.val.tokens)
    assert val.count("<|endoftext|>") == prepared.val.documents
    assert len(val.replace("<|endoftext|>", "")) == prepared.val.bytes


def test_a_second_call_prepares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = prepare(DataConfig(), BYTES, tmp_path)
    monkeypatch.setattr(corpora, "_kjv_bytes", lambda: pytest.fail("the text was read"))
    with caplog.at_level(logging.INFO):
        second = prepare(DataConfig(), BYTES, tmp_path)
    assert not caplog.records
    assert second.directory == first.directory
    assert np.array_equal(second.train.tokens, first.train.tokens)


def test_what_occurs_in_training_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(DataConfig(), BYTES, tmp_path)
    found = first.overlaps["val"]
    assert (found.documents, found.documents_in_training) == (121, 0)
    assert 0.001 < found.sequences_in_training / found.sequences < 0.02
    monkeypatch.setattr(PartText, "overlap", lambda *_: pytest.fail("measured again"))
    assert prepare(DataConfig(), BYTES, tmp_path).overlaps == first.overlaps


def test_a_folder_of_an_earlier_version_is_used_though_its_overlap_is_not_known(
    data: DataConfig, tmp_path: Path
) -> None:
    first = prepare(data, BYTES, tmp_path)
    record = json.loads((first.directory / "prepared.json").read_text())
    del record["overlap"]
    (first.directory / "prepared.json").write_text(json.dumps(record))
    again = prepare(data, BYTES, tmp_path)
    assert (again.overlaps, again.data_hash) == ({}, first.data_hash)


def test_the_test_part_is_prepared_where_it_is_asked_for(data: DataConfig, tmp_path: Path) -> None:
    without = prepare(data, BYTES, tmp_path)
    asked = replace(data, test_fraction=0.2)
    for _ in range(2):  # the second call reuses the folder
        prepared = prepare(asked, BYTES, tmp_path)
        assert prepared.test is not None
        assert prepared.train.documents + prepared.test.documents == without.train.documents
        assert np.array_equal(prepared.val.tokens, without.val.tokens)
        assert set(prepared.overlaps) == {"val", "test"}
    assert without.test is None
    assert prepared.data_hash != without.data_hash
    (prepared.directory / "test.bin").unlink()
    assert prepare(asked, BYTES, tmp_path).test.documents == prepared.test.documents


def test_a_cache_that_cannot_be_written_is_named(data: DataConfig, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot hold prepared .* type cache_dir=\.\.\."):
        prepare_function(data, BYTES, tmp_path / "file" / "cache")


def test_the_bible_in_bytes(tmp_path: Path) -> None:
    prepared = prepare(DataConfig(), BYTES, tmp_path)
    assert (prepared.train.documents, prepared.val.documents) == (1068, 121)
    assert (len(prepared.train.tokens), len(prepared.val.tokens)) == (3_811_747, 423_887)


def test_equal_documents_have_another_hash_than_before_they_were_kept_together(
    data: DataConfig, tmp_path: Path
) -> None:
    (tmp_path / "twice").write_text("|".join([f"document {index}" for index in range(20)] * 2))
    twice = DataConfig("text", str(tmp_path / "twice"), separator="|")
    prepared = prepare(twice, BYTES, tmp_path)
    found = prepared.overlaps["val"]
    assert (found.documents, found.documents_in_training) == (2, 0)
    rule = {"kind": "document", "val_fraction": 0.1, "seed": 0}
    texts = corpora.load_documents(twice).sha256
    assert prepared.data_hash != hash_of({"text": texts, "split": rule})
    once = hash_of({"text": corpora.load_documents(data).sha256, "split": rule})
    assert prepare(data, BYTES, tmp_path).data_hash == once


def test_every_choice_has_its_own_folder(data: DataConfig, tmp_path: Path) -> None:
    other = DataConfig(data.name, data.path, data.separator, split_seed=1)
    prepare(data, BYTES, tmp_path)
    prepare(other, BYTES, tmp_path)
    prepare(data, choose("tokenizer", "chars"), tmp_path)
    prepare(data, choose("tokenizer", "bpe", {"vocab_size": 260}), tmp_path)
    prepare(data, choose("tokenizer", "bpe", {"vocab_size": 261}), tmp_path)
    assert len(folders(tmp_path)) == 5


def test_the_vocabulary_is_of_the_training_text_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "text.txt").write_text("abcabcabcabcabcabczz")
    data = DataConfig("text", str(tmp_path / "text.txt"))
    for _ in range(2):  # the second call reuses the folder and must warn as well
        caplog.clear()
        prepared = prepare(data, choose("tokenizer", "chars"), tmp_path)
        assert prepared.tokenizer.vocab_size == 5
        assert (prepared.val.altered, prepared.val.bytes) == (1, None)
        assert "1 of 1 validation documents do not come back from their tokens" in caplog.text


@pytest.mark.parametrize("name", ["train.bin", "val.bin", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["truncate", "remove", "replace"])
def test_a_damaged_folder_is_built_again(
    data: DataConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    first = prepare(data, BYTES, tmp_path)
    tokens = first.train.tokens.tolist()
    other = prepare(data, choose("tokenizer", "chars"), tmp_path)
    file = first.directory / name
    content = file.read_bytes()
    file.unlink()
    if damage == "truncate":
        file.write_bytes(content[:-2])
    elif damage == "replace":
        shutil.copy(other.directory / name, file)
    again = prepare(data, BYTES, tmp_path)
    assert "is damaged and is built again" in caplog.text
    assert again.train.tokens.tolist() == tokens
    assert len(folders(tmp_path)) == 2


def test_what_a_killed_preparation_left_is_cleared(data: DataConfig, tmp_path: Path) -> None:
    name = prepare(data, BYTES, tmp_path).directory.name
    shutil.rmtree(tmp_path / "cache")
    leftover = tmp_path / "cache" / f".{name}.partial-1"
    leftover.mkdir(parents=True)
    (leftover / "train.bin").write_bytes(b"half")
    assert prepare(data, BYTES, tmp_path).train.documents > 0
    assert folders(tmp_path) == [name]


def test_a_failed_preparation_leaves_nothing(data: DataConfig, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tokenizer\.vocab_size=5000 is more than"):
        prepare(data, choose("tokenizer", "bpe", {"vocab_size": 5000}), tmp_path)
    assert folders(tmp_path) == []


def test_text_that_changes_meanwhile_is_refused(
    data: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["lm_experiments.data.prepare"]  # its name in the package is the function
    monkeypatch.setattr(module, "content_hash", lambda data: "0" * 64)
    with pytest.raises(InputError, match="changed while it was read"):
        prepare(data, BYTES, tmp_path)


def test_processes_at_once_prepare_it_once(data: DataConfig, tmp_path: Path) -> None:
    program = f"""
import logging, sys, time
from pathlib import Path
from lm_experiments.data import DataConfig, prepare
from lm_experiments.registry import Choice, choose
module = sys.modules["lm_experiments.data.prepare"]  # its name in the package is the function
logging.basicConfig(level="INFO", format="%(message)s")
build = module._build
module._build = lambda *args: (time.sleep(1), build(*args))
go = Path(sys.argv[1])
Path(sys.argv[2]).touch()
while not go.exists():
    time.sleep(0.01)
data = DataConfig("text", {data.path!r}, separator="|")
tokenizer, cache = choose("tokenizer", "bytes"), Path({str(tmp_path / "cache")!r})
print(len(prepare(data, tokenizer, cache).train.tokens))
"""
    go, ready = tmp_path / "go", [tmp_path / f"ready{index}" for index in range(2)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(go), str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for path in ready
    ]
    while not all(path.exists() for path in ready):
        assert all(process.poll() is None for process in processes)
    go.touch()
    results = [process.communicate(timeout=60) for process in processes]
    assert results[0][0] == results[1][0] != ""
    logged = results[0][1] + results[1][1]
    assert logged.count("preparing ") == 1
    assert logged.count("waiting for another process") == 1
    assert len(folders(tmp_path)) == 1


@pytest.mark.parametrize(("folder", "mode"), [(0o777, 0o666), (0o775, 0o664), (0o755, 0o644)])
def test_all_who_may_write_to_a_cache_may_take_its_locks(
    folder: int, mode: int, data: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(folder)

    def build(data: DataConfig, tokenizer: Choice, directory: Path, key: str) -> None:
        [lock] = directory.parent.glob("*.lock")
        modes.append(lock.stat().st_mode & 0o666)
        raise InputError("enough")

    monkeypatch.setattr(sys.modules[prepare_function.__module__], "_build", build)
    before = os.umask(0o022)
    try:
        with pytest.raises(InputError, match="enough"):
            prepare(data, BYTES, tmp_path)
    finally:
        os.umask(before)
    assert modes == [mode]
