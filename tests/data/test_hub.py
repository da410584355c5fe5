"""Streaming datasets: every layout gives the same text, in batches, with a hash."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from dataset_folders import LAYOUTS, SEPARATOR, TRAIN, VAL, as_jsonl, as_parquet, as_text

from lm_experiments.data import DataConfig, encode_corpus, hub, prepare
from lm_experiments.data.hashing import hash_of
from lm_experiments.data.lfs import POINTER
from lm_experiments.data.overlap import Overlap
from lm_experiments.data.prepare import PreparedData
from lm_experiments.data.store import StoreWriter
from lm_experiments.errors import InputError
from lm_experiments.registry import Choice, choose

BYTES = choose("tokenizer", "bytes")
STORIES = {
    "name": "tinystories",
    "dataset": "roneneldan/TinyStories",
    "train_files": "TinyStoriesV2-GPT4-train.txt",
    "val_files": "TinyStoriesV2-GPT4-valid.txt",
    "train_split": "train",
    "val_split": "validation",
    "separator": SEPARATOR,
}


def stories(path: Path | None, **options: Any) -> DataConfig:
    return DataConfig(**{**STORIES, "path": None if path is None else str(path), **options})


def rows(path: Path, **options: Any) -> DataConfig:
    return DataConfig(name="hf", path=str(path), **options)


def prepared(tmp_path: Path, data: DataConfig, tokenizer: Choice = BYTES) -> PreparedData:
    return prepare(data, tokenizer, tmp_path / "cache")


def texts(data: PreparedData, side: str) -> list[str]:
    return data.tokenizer.decode(getattr(data, side).tokens).split(SEPARATOR)[:-1]


def text_hash(documents: list[str]) -> str:
    lengths = (len(text).to_bytes(8, "little") for text in documents)
    parts = (part for pair in zip(lengths, documents, strict=True) for part in pair)
    content = b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_layout_gives_the_same_documents(tmp_path: Path, layout: str) -> None:
    data = prepared(tmp_path, stories(LAYOUTS[layout](tmp_path / layout)))
    assert texts(data, "train") == TRAIN
    assert texts(data, "val") == VAL
    assert data.train.bytes == sum(map(len, TRAIN))
    assert data.data_hash == hash_of({"train": text_hash(TRAIN), "val": text_hash(VAL)})


def test_what_occurs_in_the_training_split_is_counted(tmp_path: Path) -> None:
    words = " ".join(f"word{index}" for index in range(20))
    folder = as_jsonl(tmp_path / "jsonl", ["one", f"{words} more", "two"], ["two", "three", words])
    data = prepared(tmp_path, rows(folder, val_split="validation"))
    assert data.overlaps == {"val": Overlap(3, 1, 8, 8)}


@pytest.mark.parametrize("val_split", [None, "validation"])
def test_the_test_part_is_drawn_from_the_training_split(
    tmp_path: Path, val_split: str | None
) -> None:
    many = [f"document {index}" for index in range(1000)]
    folder = as_jsonl(tmp_path / "jsonl", [*many, *many[:50]], ["own"])
    without = prepared(tmp_path, rows(folder, val_split=val_split))
    data = prepared(tmp_path, rows(folder, val_split=val_split, test_fraction=0.2))
    train, val, test = (texts(data, part) for part in ("train", "val", "test"))
    assert without.test is None
    assert val == texts(without, "val")
    assert sorted([*train, *test]) == sorted(texts(without, "train"))
    assert not set(train) & set(test)
    assert 150 < len(set(test)) < 250
    assert data.data_hash == hash_of(
        {"train": text_hash(train), "val": text_hash(val), "test": text_hash(test)}
    )
    assert data.overlaps["test"].documents_in_training == 0


def test_an_empty_test_part_is_refused(tmp_path: Path) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    with pytest.raises(InputError, match=r"leaves no test text; type another data\.test_fraction"):
        prepared(tmp_path, rows(folder, val_split="validation", test_fraction=1e-9))


def test_a_folder_prepared_before_there_was_a_test_part_is_found(tmp_path: Path) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    data = rows(folder, val_split="validation")
    options = {key: value for key, value in asdict(data).items() if value is not None}
    del options["path"], options["test_fraction"]
    files = {
        file.name: {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        for file in folder.iterdir()
    }
    key = hub.source_key(data, tmp_path / "cache")
    assert key == hash_of({"options": options, "files": files})
    other = rows(folder, val_split="validation", test_fraction=0.1)
    assert hub.source_key(other, tmp_path / "cache") != key


def test_a_folder_without_the_usual_files_is_taken_as_laid_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepared(tmp_path, stories(as_text(tmp_path / "text")))
    assert not caplog.records
    prepared(tmp_path, stories(as_parquet(tmp_path / "parquet")))
    assert "parquet has no TinyStoriesV2-GPT4-train.txt nor" in caplog.text


def test_without_a_separator_each_line_of_text_is_a_document(tmp_path: Path) -> None:
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "train.txt").write_text("one\ntwo\n\n")
    (folder / "validation.txt").write_text("three\nfour")
    data = prepared(tmp_path, rows(folder, val_split="validation"))
    assert (texts(data, "train"), texts(data, "val")) == (["one", "two"], ["three", "four"])


def test_a_separator_cuts_across_and_within_lines() -> None:
    lines = ["one", "", "still one", "END", "two", "ENDthreeEND", "four"]
    assert list(hub.cut(lines, "END", "lines")) == ["one\n\nstill one", "two", "three", "four"]


def test_limits_take_whole_documents_from_the_beginning() -> None:
    documents = ["aaaa", "bb", "éé", "c"]
    assert list(hub.limited(documents, None, None)) == documents
    assert list(hub.limited(documents, 2, None)) == ["aaaa", "bb"]
    assert list(hub.limited(documents, None, 6)) == ["aaaa", "bb"]
    assert list(hub.limited(documents, None, 9)) == ["aaaa", "bb"]
    assert list(hub.limited(documents, None, 10)) == ["aaaa", "bb", "éé"]


def test_limits_count_in_each_split(tmp_path: Path) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    data = prepared(tmp_path, rows(folder, val_split="validation", max_documents=5))
    assert (texts(data, "train"), texts(data, "val")) == (TRAIN[:5], VAL[:5])


def test_validation_documents_are_drawn_by_their_text_alone(tmp_path: Path) -> None:
    many = [f"document {index}" for index in range(2000)]
    folder = as_jsonl(tmp_path / "jsonl", [*many, *many[:50]])
    data = prepared(tmp_path, rows(folder, val_fraction=0.1))
    train, val = texts(data, "train"), texts(data, "val")
    assert sorted([*train, *val]) == sorted([*many, *many[:50]])
    assert not set(train) & set(val)
    assert 150 < len(val) < 250
    assert val == [text for text in [*many, *many[:50]] if text in set(val)]
    reversed_folder = as_jsonl(tmp_path / "reversed", [*many[::-1]])
    again = prepared(tmp_path, rows(reversed_folder, val_fraction=0.1))
    assert set(texts(again, "val")) == set(val)
    other = prepared(tmp_path, rows(folder, val_fraction=0.1, split_seed=1))
    assert set(texts(other, "val")) != set(val)


def test_a_validation_split_that_is_not_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    prepared(tmp_path, rows(folder, val_fraction=0.2))
    advice = "data.val_split=validation data.val_fraction=0.1"
    assert f"type {advice} to take it" in caplog.text
    caplog.clear()
    prepared(tmp_path, rows(folder, val_split="validation", val_fraction=0.1))
    assert not caplog.records


def test_blank_and_empty_rows_are_no_documents(tmp_path: Path) -> None:
    folder = as_jsonl(tmp_path / "jsonl", ["one", "", " \n", "two"], ["three"])
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"text": null, "id": 2}\n')
    data = prepared(tmp_path, rows(folder, val_split="validation"))
    assert texts(data, "train") == ["one", "two"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_column": "story"}, "text_column=story is not a column of .*, which has text, id"),
        ({"text_column": "id"}, "text_column=id of .* holds int and not text"),
        ({"train_split": "all"}, "train_split=all is not a split of .* has train, validation"),
        ({"val_split": "dev"}, "val_split=dev is not a split of .*, or data.val_split=null"),
        ({"max_documents": 1, "val_fraction": 1e-9}, "leaves no validation text"),
        ({"val_fraction": 1 - 1e-9}, "leaves no training text; type another data.val_fraction"),
    ],
)
def test_what_does_not_fit_the_dataset_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    with pytest.raises(InputError, match=message):
        prepared(tmp_path, rows(folder, **options))
    assert not [path for path in (tmp_path / "cache").iterdir() if path.suffix == ".bin"]


@pytest.mark.skipif(find_spec("zstandard") is not None, reason="what is missing is installed")
def test_the_package_that_reads_a_compressed_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "train.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(InputError, match=r"compressed with zstd, .* type pip install zstandard"):
        prepared(tmp_path, rows(tmp_path / "packed"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train.jsonl", b'{"text": "a"}\n{"text": \n', "JSON parse error"),
        ("train.parquet", b"PAR1 and nothing", "Parquet magic bytes not found"),
        ("train.txt", b"fine\n\xff\xfe\n", "can't decode byte 0xff"),
        ("words.xyz", b"what is this", "supported"),
    ],
)
def test_a_folder_that_cannot_be_read_is_refused(
    tmp_path: Path, file: str, content: bytes, message: str
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / file).write_bytes(content)
    with pytest.raises(InputError, match=f"bad cannot be read as a dataset .*{message}"):
        prepared(tmp_path, rows(tmp_path / "bad"))


def test_a_missing_or_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere is not a folder"):
        prepared(tmp_path, rows(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty holds no file"):
        prepared(tmp_path, rows(tmp_path / "empty"))


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"type pip install 'lm_experiments\[hf\]'"):
        prepared(tmp_path, rows(folder))


def test_what_is_prepared_needs_neither_dataset_nor_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    first = prepared(tmp_path, rows(folder, val_split="validation"))
    monkeypatch.setattr(encode_corpus, "Dataset", lambda *_: pytest.fail("the dataset was opened"))
    shutil.move(folder, tmp_path / "moved")
    again = prepared(tmp_path, rows(tmp_path / "moved", val_split="validation"))
    assert again.directory == first.directory
    assert again.data_hash == first.data_hash


def test_a_changed_file_is_prepared_again(tmp_path: Path) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    first = prepared(tmp_path, rows(folder, val_split="validation"))
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"text": "one more", "id": 2}\n')
    again = prepared(tmp_path, rows(folder, val_split="validation"))
    assert texts(again, "train") == [*TRAIN, "one more"]
    assert again.data_hash != first.data_hash


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    labelled = encode_corpus._labelled

    def meddling(dataset: hub.Dataset) -> Iterator[tuple[str, str]]:
        yield from labelled(dataset)
        (folder / "validation.jsonl").write_text('{"text": "other", "id": 1}\n')

    monkeypatch.setattr(encode_corpus, "_labelled", meddling)
    with pytest.raises(InputError, match="changed while it was read"):
        prepared(tmp_path, rows(folder, val_split="validation"))


def test_a_damaged_record_is_prepared_again(tmp_path: Path) -> None:
    folder = as_jsonl(tmp_path / "jsonl")
    first = prepared(tmp_path, rows(folder, val_split="validation"))
    (first.directory / "prepared.json").write_text("{")
    again = prepared(tmp_path, rows(folder, val_split="validation"))
    assert again.data_hash == first.data_hash


class Library:
    """Stands for `datasets` where there is a network: the hub's name leads to a local folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[dict[str, Any]] = []

    def load_dataset_builder(self, path: str, **options: Any) -> Any:
        import datasets

        self.calls.append({"dataset": path, **options})
        options = {**options, "revision": None, "name": None}
        return datasets.load_dataset_builder(str(self.folder), **options)


def test_a_dataset_of_the_hub_is_found_again_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(as_text(tmp_path / "hub"))
    monkeypatch.setattr(hub, "_library", lambda config: library)
    config = stories(None, subset="small", revision="v2")
    first = prepared(tmp_path, config)
    called = {key: library.calls[0][key] for key in ("dataset", "name", "revision")}
    assert called == {"dataset": "roneneldan/TinyStories", "name": "small", "revision": "v2"}
    assert library.calls[0]["data_files"] == {
        "train": "TinyStoriesV2-GPT4-train.txt",
        "validation": "TinyStoriesV2-GPT4-valid.txt",
    }
    record = json.loads((first.directory / "prepared.json").read_text())
    assert record["files"]["train"] == [str(library.folder / "TinyStoriesV2-GPT4-train.txt")]
    assert record["data"]["revision"] == "v2"
    monkeypatch.setattr(hub, "_library", lambda config: pytest.fail("the hub was asked"))
    assert prepared(tmp_path, config).data_hash == first.data_hash
    local = prepared_locally(tmp_path, library.folder, monkeypatch)
    assert local.data_hash == first.data_hash
    assert local.directory != first.directory


def prepared_locally(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> PreparedData:
    monkeypatch.undo()
    return prepared(tmp_path, stories(folder))


def test_an_unreachable_hub_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unreachable:
        def load_dataset_builder(self, *_: Any, **__: Any) -> Any:
            raise ConnectionError("no route\nto host")

    monkeypatch.setattr(hub, "_library", lambda config: Unreachable())
    with pytest.raises(InputError, match=r"\(no route to host\); type data\.path= .*prepare_data"):
        prepared(tmp_path, stories(None))


def test_no_more_than_a_batch_waits_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, written, most = 0, 0, 0
    documents, add = hub.Dataset.documents, StoreWriter.add

    def counting(dataset: hub.Dataset, split: str) -> Iterator[str]:
        nonlocal read, most
        for text in documents(dataset, split):
            read += 1
            most = max(most, read - written)
            yield text

    def writing(writer: StoreWriter, *values: Any) -> None:
        nonlocal written
        written += 1
        add(writer, *values)

    monkeypatch.setattr(hub.Dataset, "documents", counting)
    monkeypatch.setattr(StoreWriter, "add", writing)
    monkeypatch.setattr(
        encode_corpus, "_tokenizer", lambda *_: encode_corpus.train_tokenizer((), BYTES)
    )
    monkeypatch.setattr(encode_corpus, "BATCH_DOCUMENTS", 100)
    folder = as_jsonl(tmp_path / "jsonl", [f"document {index}" for index in range(3000)])
    prepared(tmp_path, rows(folder, val_fraction=0.1))
    assert (read, written) == (3000, 3000)
    assert 100 <= most <= 200


def test_a_vocabulary_is_trained_on_the_beginning_of_the_training_text(tmp_path: Path) -> None:
    train = ["abab " * 40] * 10 + ["cdcd " * 40] * 10
    folder = as_jsonl(tmp_path / "jsonl", train, ["efef " * 40])
    small = choose("tokenizer", "bpe", {"vocab_size": 260, "sample_bytes": 2000})
    data = prepared(tmp_path, rows(folder, val_split="validation"), small)
    words = set(data.tokenizer.state()["model"]["vocab"])
    assert "ab" in words
    assert not words & {"cd", "ef"}


def test_characters_are_those_of_all_training_text(tmp_path: Path) -> None:
    folder = as_jsonl(tmp_path / "jsonl", ["ab", "cd"], ["ae"])
    data = prepared(tmp_path, rows(folder, val_split="validation"), choose("tokenizer", "chars"))
    assert data.tokenizer.vocab_size == 6
    assert data.val.altered == 1


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_the_expected_size_is_close(tmp_path: Path, layout: str) -> None:
    words = random.Random(0)
    many = [" ".join(f"{words.random():.3f}" for _ in range(800)) for _ in range(60)]
    dataset = hub.Dataset(stories(LAYOUTS[layout](tmp_path / layout, many)), tmp_path / "cache")
    total = sum(map(len, many))
    assert dataset.expected_bytes("train") == pytest.approx(total, rel=0.05)
    limits = stories(tmp_path / layout, max_bytes=1000)
    assert hub.Dataset(limits, tmp_path / "cache").expected_bytes("train") == 1000


def test_the_log_says_how_much_and_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lm_experiments.data.progress.SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(encode_corpus, "BATCH_DOCUMENTS", 20)
    with caplog.at_level(logging.INFO):
        data = prepared(tmp_path, stories(as_text(tmp_path / "text")))
    assert "text of about" in caplog.text
    assert "at the pace of its first" in caplog.text
    assert f"encoded {len(TRAIN) + len(VAL)} documents" in caplog.text
    assert f"{len(data.train.tokens) + len(data.val.tokens):,} tokens" in caplog.text


def test_a_pointer_of_git_lfs_is_no_dataset(tmp_path: Path) -> None:
    folder = as_parquet(tmp_path / "dataset")
    shard = next(folder.rglob("*validation*.parquet"))
    shard.write_bytes(POINTER + b"v1\n")
    with pytest.raises(InputError, match=r"validation.* is a pointer of Git LFS"):
        prepared(tmp_path, rows(folder, val_split="validation"))


def test_a_separator_of_lines_is_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = as_text(tmp_path / "dataset")
    with pytest.raises(InputError, match=r"has line breaks, .*; type data=text"):
        rows(folder, separator=r"\n\n")
    prepared(tmp_path, rows(folder, separator="<end>", val_split="validation"))
    assert "data.separator='<end>' occurs nowhere" in caplog.text


def test_text_files_that_are_no_copy_of_a_dataset_are_refused_with_their_names(
    tmp_path: Path,
) -> None:
    folder = as_text(tmp_path / "both", VAL, VAL)
    for name, documents in (("train", TRAIN), ("valid", VAL)):
        (folder / f"owt_{name}.txt").write_text(SEPARATOR.join(documents))
    web: dict[str, Any] = {"name": "openwebtext", "dataset": "Skylion007/openwebtext"}
    with pytest.raises(
        InputError, match=r"no copy of Skylion.* owt_train\.txt, .*data\.train_files="
    ):
        prepared(tmp_path, DataConfig(path=str(folder), **web))
    files = {"train_files": "owt_train.txt", "val_files": "owt_valid.txt"}
    web |= {**files, "val_split": "validation", "separator": SEPARATOR}
    data = prepared(tmp_path, DataConfig(path=str(folder), **web))
    assert (texts(data, "train"), texts(data, "val")) == (TRAIN, VAL)


@pytest.mark.parametrize("separator", [None, SEPARATOR])
def test_an_end_of_text_that_is_read_as_text_is_said(
    tmp_path: Path, separator: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    folder = as_text(tmp_path / "dataset")
    prepared(tmp_path, rows(folder, separator=separator, val_split="validation"))
    assert caplog.text.count(f"the text holds {SEPARATOR}, which is") == (separator is None)
