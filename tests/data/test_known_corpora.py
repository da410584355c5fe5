"""Corpora that are known by name: tiny Shakespeare from its file or the hub, and WikiText-103."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from lm_experiments.data import DataConfig, content_hash, corpora, hub, load_documents, prepare
from lm_experiments.data.hashing import hash_of
from lm_experiments.errors import InputError
from lm_experiments.registry import choose

FILE = Path(__file__).parents[3] / "shared" / "data" / "tinyshakespeare.txt"
WIKI = [
    "",
    " = Valkyria Chronicles III = \n",
    "",
    " It is a game . \n",
    " = = Gameplay = = \n",
    " x = 1 = y \n",
    "",
    " = Tower = \n",
    " It is of stone . \n",
]
ARTICLES = [
    " = Valkyria Chronicles III = \n It is a game . \n = = Gameplay = = \n x = 1 = y \n",
    " = Tower = \n It is of stone . \n",
]


def plays(path: Path | None = None) -> DataConfig:
    return DataConfig("tinyshakespeare", split="tail", path=None if path is None else str(path))


def as_hub(folder: Path, **splits: list[str]) -> Path:
    folder.mkdir()
    for name, rows in splits.items():
        parquet.write_table(pa.table({"text": rows}), folder / f"{name}-00000-of-00001.parquet")
    return folder


@pytest.fixture
def short_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Text that is taken for tiny Shakespeare, and lies on a hub in its three parts."""
    text = "First Citizen:\nSpeak, speak.\n\n" * 20
    whole = corpora.Documents([text])
    hub_folder = as_hub(
        tmp_path / "hub", train=[text[:540]], validation=[text[540:570]], test=[text[570:]]
    )
    monkeypatch.setattr(corpora, "SHAKESPEARE", str(hub_folder))
    monkeypatch.setattr(corpora, "SHAKESPEARE_TEXT_SHA256", whole.sha256)
    return text


@pytest.mark.skipif(not FILE.is_file(), reason="needs the file of tiny Shakespeare")
def test_the_file_of_char_rnn_is_what_the_hash_says() -> None:
    (text,) = load_documents(plays(FILE)).texts
    assert (len(text), text[:14]) == (1_115_394, "First Citizen:")
    assert content_hash(plays(FILE)) == content_hash(plays())


def test_the_hub_and_the_file_hold_the_same_plays(tmp_path: Path, short_plays: str) -> None:
    file = tmp_path / "tinyshakespeare.txt"
    file.write_text(short_plays)
    assert load_documents(plays()).texts == load_documents(plays(file)).texts == [short_plays]
    assert content_hash(plays()) == content_hash(plays(file))


@pytest.mark.usefixtures("short_plays")
def test_what_is_prepared_needs_neither_file_nor_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chars, cache = choose("tokenizer", "chars"), tmp_path / "cache"
    first = prepare(plays(), chars, cache)
    assert (len(first.train.tokens), len(first.val.tokens)) == (541, 61)
    monkeypatch.setattr(corpora, "joined", lambda *_: pytest.fail("the hub was read"))
    assert prepare(plays(), chars, cache).directory == first.directory


@pytest.mark.usefixtures("short_plays")
def test_another_text_is_not_taken_for_tiny_shakespeare(tmp_path: Path) -> None:
    file = tmp_path / "other.txt"
    file.write_text("To be, or not.")
    for read in (load_documents, content_hash):
        with pytest.raises(InputError, match=r"is not tiny Shakespeare.*type data=text"):
            read(plays(file))


def test_without_a_network_the_file_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "SHAKESPEARE", str(tmp_path / "nowhere"))
    with pytest.raises(
        InputError, match=r"cannot be downloaded .* data\.path=tinyshakespeare\.txt"
    ):
        load_documents(plays())


def test_an_article_of_wikitext_begins_at_its_title(tmp_path: Path) -> None:
    assert [text for text in hub.articles(WIKI) if text] == ARTICLES
    folder = as_hub(tmp_path / "wiki", train=WIKI, validation=WIKI[-2:])
    data = DataConfig("wikitext103", path=str(folder), val_split="validation")
    prepared = prepare(data, choose("tokenizer", "bytes"), tmp_path / "cache")
    assert (prepared.train.documents, prepared.val.documents) == (2, 1)
    train, val = (corpora.Documents(texts).sha256 for texts in (ARTICLES, ARTICLES[1:]))
    assert prepared.data_hash == hash_of({"train": train, "val": val})
