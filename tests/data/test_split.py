"""Training and validation text: nothing lost, nothing shared, about the right size."""

from __future__ import annotations

import pytest

from lm_experiments.data import DataConfig, Split, load_documents, split_documents
from lm_experiments.data.hashing import keyed_generator
from lm_experiments.errors import InputError


def documents(count: int) -> list[str]:
    return [f"{index:03d}" * (1 + index % 7) for index in range(count)]


def split(texts: list[str], kind: str, fraction: float = 0.1, seed: int = 0) -> Split:
    return split_documents(texts, DataConfig(split=kind, val_fraction=fraction, split_seed=seed))


def test_by_document_keeps_order_and_loses_nothing() -> None:
    texts = documents(200)
    divided = split(texts, "document", 0.25)
    assert divided.train == [text for text in texts if text not in set(divided.val)]
    assert divided.val == [text for text in texts if text not in set(divided.train)]
    share = sum(map(len, divided.val)) / sum(map(len, texts))
    assert share == pytest.approx(0.25, abs=0.01)


def test_by_document_is_drawn_from_the_seed() -> None:
    texts = documents(50)
    assert split(texts, "document") == split(texts, "document")
    assert split(texts, "document").val != split(texts, "document", seed=1).val
    assert split(texts, "document").val != texts[-len(split(texts, "document").val) :]


@pytest.mark.parametrize("seed", range(5))
def test_equal_documents_are_on_one_side(seed: int) -> None:
    texts = [*documents(20), *documents(20)[::-1]]
    divided = split(texts, "document", 0.2, seed)
    assert not set(divided.train) & set(divided.val)
    assert divided.val == [text for text in texts if text in set(divided.val)]
    assert len(divided.train) + len(divided.val) == 40
    share = sum(map(len, divided.val)) / sum(map(len, texts))
    assert share == pytest.approx(0.2, abs=0.03)


def test_a_document_is_no_likelier_for_validation_where_it_has_copies() -> None:
    texts = [*documents(100), *documents(50) * 3]
    copied = set(documents(50))
    drawn = [text for seed in range(40) for text in set(split(texts, "document", 0.2, seed).val)]
    assert sum(text in copied for text in drawn) / len(drawn) == pytest.approx(0.5, abs=0.05)


def test_without_equal_documents_the_split_is_that_of_the_drawn_order() -> None:
    texts = documents(50)
    order = keyed_generator("split", 3).permutation(50).tolist()
    target, taken, chosen = 0.3 * sum(map(len, texts)), 0, set()
    for index in order:
        if abs(taken + len(texts[index]) - target) < abs(taken - target):
            chosen.add(index)
            taken += len(texts[index])
    assert split(texts, "document", 0.3, 3).val == [texts[index] for index in sorted(chosen)]


def test_a_huge_document_stays_in_training() -> None:
    texts = ["x" * 10_000, *documents(20)]
    assert all("x" * 10_000 in split(texts, "document", 0.02, seed).train for seed in range(20))


def test_the_tail_is_cut_between_characters() -> None:
    divided = split(["ab", "cdeéfg", "h"], "tail", 0.4)  # 10 bytes, and the fifth-last is in é
    assert divided == Split(["ab", "cde"], ["éfg", "h"])


def test_the_tail_of_one_document() -> None:
    assert split(["0123456789"], "auto", 0.3) == Split(["0123456"], ["789"])


def test_the_tail_at_a_boundary_of_documents() -> None:
    assert split(["01234567", "89"], "tail", 0.2) == Split(["01234567"], ["89"])


@pytest.mark.parametrize("kind", ["document", "tail"])
def test_the_test_text_is_taken_from_training_alone(kind: str) -> None:
    texts = [*documents(200), *documents(20)]
    options = {"split": kind, "val_fraction": 0.1}
    without = split_documents(texts, DataConfig(**options))
    divided = split_documents(texts, DataConfig(**options, test_fraction=0.2))
    assert without.test == []
    assert divided.val == without.val
    together = sorted("".join([*divided.train, *divided.test, *divided.val]))
    assert together == sorted("".join(texts))
    assert sum(map(len, divided.test)) / sum(map(len, texts)) == pytest.approx(0.2, abs=0.01)


def test_equal_documents_are_in_one_of_three_parts() -> None:
    texts = [*documents(60), *documents(60)]
    divided = split_documents(texts, DataConfig(val_fraction=0.2, test_fraction=0.3))
    parts = [set(divided.train), set(divided.val), set(divided.test)]
    assert sum(map(len, parts)) == len(set(texts))
    assert all(parts)


def test_the_test_tail_is_before_the_validation_tail() -> None:
    data = DataConfig(split="tail", val_fraction=0.3, test_fraction=0.2)
    assert split_documents(["0123456789"], data) == Split(["01234"], ["789"], ["56"])
    data = DataConfig(split="tail", val_fraction=0.1, test_fraction=0.89)
    with pytest.raises(InputError, match="leaves no training text"):
        split_documents(["é789"], data)


def test_an_empty_test_text_is_refused() -> None:
    data = DataConfig(split="document", val_fraction=0.4, test_fraction=0.05)
    with pytest.raises(InputError, match=r"data\.test_fraction=0\.05 of 3 .* leaves no test text"):
        split_documents(["long one", "long two", "long six"], data)


@pytest.mark.parametrize(
    ("texts", "kind", "fraction", "side"),
    [
        (["long enough"] * 2, "document", 0.1, "validation"),
        (["long enough"] * 2, "document", 0.99, "training"),
        (["abc"], "tail", 0.1, "validation"),
        (["é"], "tail", 0.5, "training"),
    ],
)
def test_an_empty_side_is_refused(texts: list[str], kind: str, fraction: float, side: str) -> None:
    with pytest.raises(InputError, match=f"leaves no {side} text"):
        split(texts, kind, fraction)


def test_the_king_james_split() -> None:
    divided = split_documents(load_documents(DataConfig()).texts, DataConfig())
    assert (len(divided.train), len(divided.val)) == (1068, 121)
    assert sum(len(text.encode()) for text in divided.val) == 423_766
