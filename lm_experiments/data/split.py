"""Split documents into training and validation text, by document or at the end of the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lm_experiments.data.config import DataConfig
from lm_experiments.data.hashing import keyed_generator
from lm_experiments.errors import InputError

FEWEST_DOCUMENTS = 10
"""With at least this many documents, the `auto` split is by document."""


@dataclass(frozen=True)
class Split:
    """Training and validation documents in reading order; neither is empty."""

    train: list[str]
    val: list[str]


def split_rule(config: DataConfig, documents: int, distinct: int) -> dict[str, str | int | float]:
    """Return what determines the split of this many documents, with `auto` resolved."""
    auto = "document" if documents >= FEWEST_DOCUMENTS else "tail"
    kind = auto if config.split == "auto" else config.split
    rule: dict[str, str | int | float] = {"kind": kind, "val_fraction": config.val_fraction}
    if kind == "tail":
        # It is not random, so the seed does not count.
        return rule
    rule["seed"] = config.split_seed
    return rule | {"duplicates": "together"} if distinct < documents else rule


def split_documents(texts: Sequence[str], config: DataConfig) -> Split:
    """Split documents so that about `val_fraction` of their bytes are for validation.

    By document, documents of exactly the same text are all on the side that is drawn for the first
    of them. Raises `InputError` if either side would be empty.
    """
    sizes = [len(text.encode()) for text in texts]
    target = config.val_fraction * sum(sizes)
    if split_rule(config, len(texts), len(set(texts)))["kind"] == "document":
        split = _by_document(texts, sizes, target, config.split_seed)
    else:
        split = _by_tail(texts, sizes, target)
    if not any(split.train) or not any(split.val):
        side = "validation" if any(split.train) else "training"
        raise InputError(
            f"data.val_fraction={config.val_fraction} of {len(texts)} documents with "
            f"{sum(sizes)} bytes leaves no {side} text; type another data.val_fraction, "
            "or data.split=tail to cut within a document"
        )
    return split


def _by_document(texts: Sequence[str], sizes: list[int], target: float, seed: int) -> Split:
    """Take random documents for validation as long as they bring it closer to `target` bytes."""
    copies = Counter(texts)
    firsts = {text: index for index, text in reversed([*enumerate(texts)])}
    chosen: set[str] = set()
    taken = 0
    for index in keyed_generator("split", seed).permutation(len(texts)).tolist():
        text, size = texts[index], sizes[index] * copies[texts[index]]
        if firsts[text] == index and abs(taken + size - target) < abs(taken - target):
            chosen.add(text)
            taken += size
    return Split(
        [text for text in texts if text not in chosen],
        [text for text in texts if text in chosen],
    )


def _by_tail(texts: Sequence[str], sizes: list[int], target: float) -> Split:
    """Take the last `target` bytes for validation, cutting one document between two characters."""
    first, tail = len(texts), 0
    while tail + sizes[first - 1] <= target:
        first -= 1
        tail += sizes[first]
    text, position = texts[first - 1], sizes[first - 1] - round(target - tail)
    # Round down to the start of a character.
    head = text.encode()[:position].decode(errors="ignore")
    rest = text[len(head) :]
    return Split(
        [*texts[: first - 1], *filter(None, [head])],
        [*filter(None, [rest]), *texts[first:]],
    )
