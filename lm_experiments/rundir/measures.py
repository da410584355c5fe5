"""What a run can be measured and compared by: fields of its result, with units and directions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """One measure of the validation set.

    Attributes:
        title: what its column is called.
        unit: what its values and differences are in.
        short: the same as published claims write it.
        test: its name on the test set.
        sign: 1 where lower is better, -1 where higher is.
        answers: whether only the answers of synthetic tasks have it.
    """

    title: str
    unit: str
    short: str
    test: str
    sign: int = 1
    answers: bool = False


MEASURES = {
    "val_loss": Measure("val loss", "nats per token", "nats/token", "test_loss"),
    "bits_per_byte": Measure("bits/byte", "bits per byte", "bits/byte", "test_bits_per_byte"),
    "accuracy": Measure("accuracy", "share of answers", "accuracy", "test_accuracy", -1, True),
    "exact_match": Measure(
        "exact match", "share of problems", "exact match", "test_exact_match", -1, True
    ),
}
"""Every measure by its field of `Result`, losses before scores."""

TESTED = {name: measure.test for name, measure in MEASURES.items()}
"""What a measure of the validation set is called on the test set."""

_BY_NAME = MEASURES | {measure.test: measure for measure in MEASURES.values()}
MEASURE_TITLES = {name: measure.title for name, measure in MEASURES.items()} | {
    "test_loss": "test loss",
    **{m.test: f"test {m.title}" for name, m in MEASURES.items() if name != "val_loss"},
}
"""The titles of all measures, on either set."""
UNITS = {name: measure.unit for name, measure in _BY_NAME.items()}
"""The units of all measures, on either set."""
SCORES = tuple(name for name, measure in _BY_NAME.items() if measure.answers)
"""The measures that only synthetic tasks have, on either set."""


def sign_of(name: str) -> int:
    """Return 1 where a lower value of a measure, on either set, is better, else -1."""
    return _BY_NAME[name].sign


def zero_said(name: str) -> str:
    """Return what a difference on the better side of zero is, in words."""
    return "below zero is a lower loss" if sign_of(name) > 0 else "above zero is better"
