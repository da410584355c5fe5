"""The documents that are evaluated, for each corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_experiments.data import DataConfig, load_documents, split_documents
from lm_experiments.errors import InputError
from lm_experiments.evaluation import documents_to_evaluate


def rows(path: Path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def test_text_files_are_read_whole(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / f"{i:02}.txt").write_text(f"text {i}", encoding="utf-8")
    data = DataConfig(name="text", path=str(tmp_path))
    assert list(documents_to_evaluate(data, tmp_path)) == [f"text {i}" for i in range(20)]


def test_of_the_bible_the_chapters_for_validation_are_read(tmp_path: Path) -> None:
    data = DataConfig(name="kjv")
    found = list(documents_to_evaluate(data, tmp_path))
    assert found == split_documents(load_documents(data).texts, data).val


def test_of_a_dataset_its_own_validation_split_is_read(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    rows(tmp_path / "train.jsonl", [f"train {i}" for i in range(40)])
    rows(tmp_path / "validation.jsonl", [f"val {i}" for i in range(9)])
    data = DataConfig(name="hf", path=str(tmp_path), val_split="validation", max_documents=5)
    found = list(documents_to_evaluate(data, tmp_path / "cache"))
    assert found == [f"val {i}" for i in range(5)]


def test_of_a_dataset_without_one_the_documents_drawn_for_validation_are_read(
    tmp_path: Path,
) -> None:
    pytest.importorskip("datasets")
    rows(tmp_path / "train.jsonl", [f"train {i}" for i in range(400)])
    data = DataConfig(name="hf", path=str(tmp_path))
    found = list(documents_to_evaluate(data, tmp_path / "cache"))
    assert 20 < len(found) < 60
    assert set(found) <= {f"train {i}" for i in range(400)}


def test_ready_tokens_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="data=tokens is no text"):
        list(documents_to_evaluate(DataConfig(name="tokens", path="x"), tmp_path))
