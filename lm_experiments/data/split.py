"""Split documents into training, validation and test text, by document or at the text's end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from lm_experiments.data.config import PARTS, DataConfig
from lm_experiments.data.hashing import keyed_generator
from lm_experiments.errors import InputError

FEWEST_DOCUMENTS = 10
"""With at least this many documents, the `auto` split is by document."""

# What is left, and what is held out.
Divided = tuple[list[str], list[str]]


@dataclass(frozen=True)
class Split:
    """The documents of each part in reading order; none that is asked for is empty."""

    train: list[str]
    val: list[str]
    test: list[str] = field(default_factory=list)


def split_rule(config: DataConfig, documents: int, distinct: int) -> dict[str, str | int | float]:
    """Return what determines the split of this many documents, with `auto` resolved."""
    auto = "document" if documents >= FEWEST_DOCUMENTS else "tail"
    kind = auto if config.split == "auto" else config.split
    rule: dict[str, str | int | float] = {"kind": kind, "val_fraction": config.val_fraction}
    if config.test_fraction:
        rule["test_fraction"] = config.test_fraction
    if kind == "tail":
        # It is not random, so the seed does not count.
        return rule
    rule["seed"] = config.split_seed
    return rule | {"duplicates": "together"} if distinct < documents else rule


def split_documents(texts: Sequence[str], config: DataConfig) -> Split:
    """Split documents so that about `val_fraction` of their bytes are for validation.

    The test text is taken by the same rule from what is left, so validation text does not depend on
    it. By document, documents of exactly the same text are all in the part that is drawn for the
    first of them. Raises `InputError` if a part would be empty.
    """
    total = sum(len(text.encode()) for text in texts)
    by_document = split_rule(config, len(texts), len(set(texts)))["kind"] == "document"
    hold_out = partial(_by_document, seed=config.split_seed) if by_document else _by_tail
    train, val = hold_out(texts, config.val_fraction * total)
    test: list[str] = []
    if config.test_fraction:
        train, test = hold_out(train, config.test_fraction * total)
    split = Split(train, val, test)
    for part in config.parts:
        if not any(getattr(split, part)):
            option = "test_fraction" if part == "test" else "val_fraction"
            raise InputError(
                f"data.{option}={getattr(config, option)} of {len(texts)} documents with "
                f"{total} bytes leaves no {PARTS[part]} text; type another data.{option}, "
                "or data.split=tail to cut within a document"
            )
    return split


def _by_document(texts: Sequence[str], target: float, seed: int) -> Divided:
    """Hold out random documents as long as they bring them closer to `target` bytes."""
    copies = Counter(texts)
    firsts = {text: index for index, text in reversed([*enumerate(texts)])}
    chosen: set[str] = set()
    taken = 0
    for index in keyed_generator("split", seed).permutation(len(texts)).tolist():
        text = texts[index]
        size = len(text.encode()) * copies[text]
        if firsts[text] == index and abs(taken + size - target) < abs(taken - target):
            chosen.add(text)
            taken += size
    kept = [text for text in texts if text not in chosen]
    return kept, [text for text in texts if text in chosen]


def _by_tail(texts: Sequence[str], target: float) -> Divided:
    """Hold out the last `target` bytes, cutting one document between two characters."""
    sizes = [len(text.encode()) for text in texts]
    first, tail = len(texts), 0
    while first and tail + sizes[first - 1] <= target:
        first -= 1
        tail += sizes[first]
    if not first:
        return [], list(texts)
    text, position = texts[first - 1], sizes[first - 1] - round(target - tail)
    # Round down to the start of a character.
    head = text.encode()[:position].decode(errors="ignore")
    rest = text[len(head) :]
    return [*texts[: first - 1], *filter(None, [head])], [*filter(None, [rest]), *texts[first:]]
