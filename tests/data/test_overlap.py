"""What of a held-out text occurs in training: documents, and sequences of 13 words."""

from __future__ import annotations

import random

import pytest

from lm_experiments.data import overlap
from lm_experiments.data.overlap import Overlap, PartText, overlap_lines

WORDS = [f"w{index}" for index in range(40)]


def part(texts: list[str]) -> PartText:
    text = PartText()
    for document in texts:
        text.add([document])
    return text


def found(train: list[str], held: list[str]) -> Overlap:
    return part(held).overlap(part(train))


def test_documents_occur_where_they_are_exactly_equal() -> None:
    assert found(["a b", "c d"], ["a b", "a b", "c D", "e"]).documents == 3
    assert found(["a b", "c d"], ["a b", "a b", "c D", "e"]).documents_in_training == 1


def test_sequences_are_13_words_whatever_the_case_and_punctuation() -> None:
    train = " ".join(WORDS[:20])
    held = f"New, {', '.join(WORDS[5:20]).upper()}! Other."
    # 17 words hold 5 sequences, of which those within the 15 known words are 3.
    assert found([train], [held]) == Overlap(1, 0, 5, 3)
    assert found([train], [" ".join(WORDS[:12])]) == Overlap(1, 0, 0, 0)


def test_sequences_do_not_span_documents() -> None:
    whole, first, second = " ".join(WORDS), " ".join(WORDS[:20]), " ".join(WORDS[20:])
    assert found([first, second], [whole]) == Overlap(1, 0, 28, 16)
    assert part([whole]).overlap(part([first, second])) == found([first, second], [whole])
    together = PartText()
    together.add([first, second])
    assert part([whole]).overlap(together).sequences_in_training == 16


def test_a_long_document_loses_no_sequence_where_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    words = [str(draw.random()) for _ in range(500)]
    monkeypatch.setattr("lm_experiments.data.tokenizer_sample.CHUNK_CHARACTERS", 300)
    monkeypatch.setattr(overlap, "PIECES", 3)
    long = found([" ".join(words)], [" ".join(words)])
    assert long.sequences == long.sequences_in_training > 900


def test_more_than_is_kept_is_sampled_alike_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    words = [str(draw.randrange(10**9)) for _ in range(60_000)]
    train = [" ".join(words[start : start + 100]) for start in range(0, 50_000, 100)]
    held = [" ".join(words[start : start + 100]) for start in range(40_000, 60_000, 100)]
    exact = found(train, held)
    assert exact.sequences_in_training / exact.sequences == 0.5
    monkeypatch.setattr(overlap, "MOST", 4000)
    sampled = found(train, held)
    assert 1000 < sampled.sequences < 4001
    assert sampled.sequences_in_training / sampled.sequences == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((1189, 0, 1000, 21), "0 of 1,189 documents and 2.1 % of its 13-word sequences occur"),
        ((4, 1, 3000, 1), "1 of 4 documents and less than 0.1 % of its 13-word sequences occur"),
        ((4, 1, 3000, 0), "1 of 4 documents and 0.0 % of its 13-word sequences occur"),
        ((4, 1, 0, 0), "1 of 4 documents occur in training; none has 13 words"),
    ],
)
def test_the_overlap_is_one_line(numbers: tuple[int, int, int, int], text: str) -> None:
    [line] = overlap_lines({"val": Overlap(*numbers)}, ["val"])
    assert line.startswith(f"validation text: {text}")


def test_what_is_not_known_is_said() -> None:
    [line] = overlap_lines({}, ["val"])
    assert line.startswith("validation text: how much of it occurs in training is not known, as")
