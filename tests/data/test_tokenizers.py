"""Three tokenizers: round trips, the end of text, vocabularies, files and bounded memory."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lm_experiments.data import (
    DataConfig,
    Tokenizer,
    load_documents,
    load_tokenizer,
    tokenizer_sample,
    train_tokenizer,
)
from lm_experiments.data.tokenizer_sample import LONGEST_PIECE, chunks, sample
from lm_experiments.data.tokenizers import END_OF_TEXT, grouped
from lm_experiments.errors import InputError
from lm_experiments.registry import Choice, choose


def bpe(vocab_size: int) -> Choice:
    return choose("tokenizer", "bpe", {"vocab_size": vocab_size})


CONFIGS = {
    "bpe": bpe(400),
    "bytes": choose("tokenizer", "bytes"),
    "chars": choose("tokenizer", "chars"),
}


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return load_documents(DataConfig()).texts[:30]


@pytest.fixture(scope="module", params=list(CONFIGS))
def tokenizer(request: pytest.FixtureRequest, texts: list[str]) -> Tokenizer:
    return train_tokenizer(texts, CONFIGS[request.param])


def unicode_text(seed: int, length: int) -> str:
    """Random characters of every plane, among them spaces and control characters."""
    draw = random.Random(seed)
    ranges = [(0, 0x20), (0x20, 0x7F), (0x7F, 0x800), (0x800, 0xD800), (0xE000, 0x110000)]
    return "".join(chr(draw.randrange(*draw.choice(ranges))) for _ in range(length))


@pytest.mark.parametrize("seed", range(20))
def test_any_text_comes_back(tokenizer: Tokenizer, seed: int) -> None:
    text = unicode_text(seed, 300)
    if tokenizer.name == "chars":
        tokenizer = train_tokenizer([text], CONFIGS["chars"])
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_ordinary_text_comes_back_in_batches(tokenizer: Tokenizer, texts: list[str]) -> None:
    texts = [*texts, ""]
    encoded = tokenizer.encode_batch(texts)
    assert [tokenizer.decode(ids) for ids in encoded] == texts
    alone = [tokenizer.encode(text) for text in texts]
    assert [ids.tolist() for ids in encoded] == [ids.tolist() for ids in alone]
    assert all(ids.max(initial=0) < tokenizer.end_of_text_id for ids in encoded)


def test_no_text_encodes_to_the_end_of_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(f"a{END_OF_TEXT}b")
    assert tokenizer.end_of_text_id == tokenizer.vocab_size - 1
    assert tokenizer.end_of_text_id not in ids
    assert len(ids) > 3


def test_the_end_of_text_is_decoded_by_its_name(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("In"), tokenizer.end_of_text_id, *tokenizer.encode("God")]
    assert tokenizer.decode(ids) == f"In{END_OF_TEXT}God"


@pytest.mark.parametrize("token", [-1, 100_000])
def test_an_id_out_of_range_is_refused(tokenizer: Tokenizer, token: int) -> None:
    with pytest.raises(InputError, match=f"token id {token} is not in the vocabulary"):
        tokenizer.decode([token])


def test_a_saved_tokenizer_is_the_same(
    tokenizer: Tokenizer, texts: list[str], tmp_path: Path
) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.vocab_size == tokenizer.vocab_size
    assert np.array_equal(loaded.encode(texts[0]), tokenizer.encode(texts[0]))


@pytest.mark.parametrize("content", ["", "[]", '{"name": "bpe", "state": {}}', '{"name": "x"}'])
def test_a_damaged_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=r"tokenizer\.json is not a saved tokenizer"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_a_missing_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json cannot be read as a tokenizer"):
        load_tokenizer(tmp_path / "none.json")


def test_fingerprints_differ(texts: list[str]) -> None:
    kinds = [*CONFIGS.values(), bpe(401)]
    tokenizers = [train_tokenizer(texts, config) for config in kinds]
    tokenizers.append(train_tokenizer(["other"], CONFIGS["chars"]))
    assert len({tokenizer.fingerprint for tokenizer in tokenizers}) == len(tokenizers)


def test_bytes_are_257() -> None:
    tokenizer = train_tokenizer([], CONFIGS["bytes"])
    assert tokenizer.vocab_size == 257
    assert tokenizer.encode("é!").tolist() == [0xC3, 0xA9, 0x21]
    assert tokenizer.decode([0xC3]) == "\ufffd"


def test_unseen_characters_are_unknown() -> None:
    tokenizer = train_tokenizer(["ba", "cab"], CONFIGS["chars"])
    assert (tokenizer.vocab_size, tokenizer.unknown_id) == (5, 3)
    assert tokenizer.encode("acxb\x00\U0010ffff").tolist() == [0, 2, 3, 1, 3, 3]
    assert tokenizer.decode([0, 3, 1]) == "a\ufffdb"


def test_bpe_has_the_size_asked_and_shortens_text(texts: list[str]) -> None:
    small, large = (train_tokenizer(texts, bpe(size)) for size in (257, 600))
    assert (small.vocab_size, large.vocab_size) == (257, 600)
    assert len(small.encode(texts[0])) == len(texts[0].encode())
    assert len(large.encode(texts[0])) < 0.6 * len(texts[0].encode())


def test_more_merges_than_the_text_yields_are_refused() -> None:
    with pytest.raises(InputError, match=r"tokenizer\.vocab_size=300 is more than") as caught:
        train_tokenizer(["abcabc"], bpe(300))
    reached = int(str(caught.value).split("type tokenizer.vocab_size=")[1].split()[0])
    assert train_tokenizer(["abcabc"], bpe(reached)).vocab_size == reached


def test_no_piece_of_bpe_is_long() -> None:
    tokenizer = train_tokenizer(["a" * 5000 + " " * 5000 + "!" * 5000], bpe(270))
    longest = max(len(tokenizer.decode([token])) for token in range(tokenizer.vocab_size - 1))
    assert 8 < longest <= LONGEST_PIECE + 1


def test_long_text_is_encoded_as_in_one_piece(texts: list[str]) -> None:
    tokenizer = train_tokenizer(texts, CONFIGS["bpe"])
    words = " ".join(texts)
    assert len(list(chunks(words))) > 1
    whole = tokenizer._backend.encode(words).ids  # type: ignore[attr-defined]
    assert tokenizer.encode(words).tolist() == whole


@pytest.mark.parametrize("unit", ["a", " ", "a ", "word  two\n "])
def test_chunks_are_bounded_and_whole(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_sample, "CHUNK_CHARACTERS", 10)
    for repeats in range(30):
        parts = list(chunks(unit * repeats))
        assert "".join(parts) == unit * repeats
        assert all(0 < len(part) <= 10 for part in parts)


def test_the_sample_is_bounded_drawn_and_repeatable() -> None:
    texts = [f"document {index:04d} é" for index in range(500)]
    drawn = list(sample(texts, 1000, seed=0))
    assert sum(len(text.encode()) for text in drawn) in (999, 1000)
    assert set(drawn[:-1]) <= set(texts)
    assert drawn == list(sample(texts, 1000, seed=0))
    assert drawn != list(sample(texts, 1000, seed=1))
    assert sorted(sample(texts, 10**6, seed=0)) == texts


def test_the_sample_ends_where_no_word_repeats(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tokenizer_sample, "DISTINCT_BYTES", 100)
    assert len(list(sample(["same word"] * 500, 10**6, seed=0))) == 500
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert len(list(sample([f"{index:010d}" for index in range(500)], 10**6, seed=0))) == 10
    assert "its words hardly repeat" in caplog.text


def test_groups_end_when_full() -> None:
    assert list(grouped(["aa", "a", "aaa", "a"], 3)) == [["aa", "a"], ["aaa"], ["a"]]
    assert list(grouped(["a"] * 5, 100, 2)) == [["a", "a"], ["a", "a"], ["a"]]


@pytest.mark.slow
def test_text_without_spaces_stays_within_memory() -> None:
    program = """
import random, resource
from lm_experiments.data import train_tokenizer
from lm_experiments.registry import choose
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (800 << 20),) * 2)
letters = bytes(97 + index % 26 for index in range(256))
text = random.Random(0).randbytes(9_000_000).translate(letters).decode()
tokenizer = train_tokenizer([text], choose("tokenizer", "bpe", {"vocab_size": 300}))
assert tokenizer.decode(tokenizer.encode(text[:1_000_000])[:1000]) in text
"""
    # Every thread reserves address space of its own, so the count must not be the machine's.
    environment = os.environ | {"RAYON_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
