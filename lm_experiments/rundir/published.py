"""What papers claim, as a study's ``published:`` block declares it before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lm_experiments.errors import InputError
from lm_experiments.rundir.measures import MEASURES

# What a source expects of the arm beside its reference, or of several arms.
BETTER, WORSE, EQUIVALENT, FAILS, ORDER = "better", "worse", "equivalent", "fails", "order"
LOWER, HIGHER = "lower", "higher"
# The sign of a difference that agrees with a word, where lower is better.
SIGNS = {BETTER: -1, WORSE: 1, LOWER: -1, HIGHER: 1}
NATS, BITS, OCTAVES = "nats/token", "bits/byte", "octaves"
# 1 where less of a unit is better, else -1.
_UNITS = {measure.short: measure.sign for measure in MEASURES.values()}
# What a claim is about: what arms are compared by, or what the trials of a tuned study say.
LOSS, SENSITIVITY, BEST_VALUE = "loss", "sensitivity", "best value"
# Fewer arms can be in a given order too easily: that of three is right by chance one time in six.
FEWEST_ORDERED = 4


@dataclass(frozen=True)
class Claimed:
    """What may be claimed of a measure, and in which units."""

    expected: tuple[str, ...]
    units: tuple[str, ...]


CLAIMED = {
    LOSS: Claimed((BETTER, WORSE, EQUIVALENT, FAILS, ORDER), tuple(_UNITS)),
    SENSITIVITY: Claimed((BETTER, WORSE), (NATS,)),
    BEST_VALUE: Claimed((LOWER, HIGHER, EQUIVALENT), (OCTAVES,)),
}


@dataclass(frozen=True)
class Source:
    """What one source found.

    Attributes:
        source: who and when: Shazeer 2020.
        read: where the figure was read: the table, figure or page, and how sure that is.
        model: what was trained: T5-base, 124M.
        tokens: how many tokens it was trained on; null where the source does not say.
        runs: how many runs each mean is over; null where the source does not say.
        difference: the arm less its reference, in the claim's unit; null where it is no difference.
        value: what the source says in place of a difference: 8.45 against 34 BLEU.
    """

    source: str
    read: str
    model: str = ""
    tokens: float | None = None
    runs: int | None = None
    difference: float | None = None
    value: str = ""

    def __post_init__(self) -> None:
        if not self.source or not self.read:
            raise InputError(
                "study.published: a source needs source: (who and when) and read: (the table, "
                "figure or page where its figure was read)."
            )
        if (self.runs is not None and self.runs < 1) or (self.tokens or 1) <= 0:
            raise InputError(
                f"study.published: {self.source} has runs={self.runs} and tokens={self.tokens}; "
                "they are above 0, or null where the source does not say."
            )


@dataclass(frozen=True)
class Claim:
    """A published claim and its sources.

    Attributes:
        claim: it, in a sentence.
        expect: better, worse, equivalent, fails or order; of a best value lower, higher or
            equivalent.
        contrast: [arm, reference], for all but an order.
        order: of an order, each arm with its published value, the best first.
        range: the lowest and the highest difference that agree with the claim, in its unit; null
            takes the span of the sources' differences, and without any the sign alone is compared.
        measure: what differs: loss, or the score in whose unit it is; or, in a study with tune:,
            sensitivity, the mean excess loss over the tuned values, or best value, the tuned value
            that is best.
        unit: nats/token; bits/byte where the source counts characters or bytes; accuracy or exact
            match of a synthetic task, of which more is better; octaves of a best value.
        sources: who found it.
        why: why a small run may differ.
        context: of [arm, arm], the context at which the arm is compared with itself at the trained
            one, as a multiple of that; one of the study's evaluate.contexts.
    """

    claim: str
    expect: str
    contrast: list[str] = field(default_factory=list)
    order: dict[str, float] = field(default_factory=dict)
    range: list[float] | None = None
    measure: str = LOSS
    unit: str = NATS
    sources: list[Source] = field(default_factory=list)
    why: str = ""
    context: float | None = None

    def __post_init__(self) -> None:
        self._check_known("measure", self.measure, tuple(CLAIMED))
        claimed = CLAIMED[self.measure]
        of = "" if self.measure == LOSS else f" for measure: {self.measure}"
        self._check_known("expect", self.expect, claimed.expected, of)
        self._check_known("unit", self.unit, claimed.units, of)
        if not self.sources:
            raise self._wrong("there are no sources; write sources: [{source: ..., read: ...}]")
        if self.expect == ORDER:
            self._check_order()
        else:
            self._check_contrast()

    @property
    def sign(self) -> int:
        """1 where lower values in its unit are better, else -1."""
        return _UNITS.get(self.unit, 1)

    @property
    def span(self) -> tuple[float, float] | None:
        """The published range of the difference, in the claim's unit; None without figures."""
        found = self.range or [s.difference for s in self.sources if s.difference is not None]
        return (min(found), max(found)) if found else None

    @property
    def arms(self) -> list[str]:
        """The arms it is about."""
        return self.contrast or list(self.order)

    @property
    def published(self) -> str:
        """What was published, in few words: "+0.0230 to +0.0900", or what is expected."""
        if self.span is None:
            return self.expect
        low, high = self.span
        figures = f"{low:+.4g}" if low == high else f"{low:+.4g} to {high:+.4g}"
        return figures if self.unit == NATS else f"{figures} {self.unit}"

    @property
    def rule(self) -> str:
        """All that its verdict depends on, on one line."""
        if self.expect == ORDER:
            return (" < " if self.sign > 0 else " > ").join(
                f"{arm} ({value:g})" for arm, value in self.order.items()
            )
        arm, reference = self.sides
        at = "" if self.span is None else f", {self.span[0]:g} to {self.span[1]:g} {self.unit}"
        return f"{self.of}{arm} - {reference}: {self.expect}{at}"

    def called(self, labels: Mapping[str, str]) -> Claim:
        """Return the same claim of arms by other labels, where they have one."""
        contrast = [labels.get(arm, arm) for arm in self.contrast]
        order = {labels.get(arm, arm): value for arm, value in self.order.items()}
        return replace(self, contrast=contrast, order=order)

    @property
    def of(self) -> str:
        """What differs, before the contrast; nothing for the loss."""
        return "" if self.measure == LOSS else f"{self.measure} of "

    def _check_known(self, key: str, value: str, allowed: tuple[str, ...], of: str = "") -> None:
        if value not in allowed:
            raise self._wrong(f"{key}={value} is not known{of}; it can be {', '.join(allowed)}")

    @property
    def sides(self) -> list[str]:
        """The two that are compared, in words: the contrast, or ALiBi at 2x and ALiBi at 1x."""
        if self.context is None:
            return self.contrast
        return [f"{self.contrast[0]} at {multiple:g}x" for multiple in (self.context, 1)]

    def _check_order(self) -> None:
        values = list(self.order.values())
        if self.contrast or self.range or self.context is not None:
            raise self._wrong("expect: order has no contrast:, range: or context:; leave them out")
        if len(values) < FEWEST_ORDERED or values != sorted(values, reverse=self.sign < 0):
            raise self._wrong(
                f"order={self.order} needs {FEWEST_ORDERED} arms or more with their values, the "
                "best first; write order: {SwiGLU: 1.944, ReLU: 1.997, ...}"
            )

    def _check_contrast(self) -> None:
        if self.context is not None:
            self._check_context(self.context)
        elif self.order or len(self.contrast) != 2 or self.contrast[0] == self.contrast[1]:
            raise self._wrong(
                f"contrast={self.contrast} must be two arms, [arm, reference], without order:"
            )
        if self.range is not None and (len(self.range) != 2 or self.range[0] > self.range[1]):
            raise self._wrong(
                f"range={self.range} must be two numbers, the lower first, or null; write "
                "range: [0.02, 0.09]"
            )
        if self.expect == FAILS and self.span is not None:
            raise self._wrong("expect: fails counts runs; leave range: and difference: out")
        if (self.measure, self.expect) == (BEST_VALUE, EQUIVALENT) and self.range is None:
            raise self._wrong("a best value is equivalent within a range:; write range: [-1, 1]")
        sign = self.sign * SIGNS.get(self.expect, 0)
        if sign and self.span is not None and max(sign * end for end in self.span) <= 0:
            raise self._wrong(
                f"expect: {self.expect} goes against its differences, {self.published}, of which "
                f"those {'below' if self.sign > 0 else 'above'} zero are "
                f"{LOWER if self.measure == BEST_VALUE else BETTER}"
            )

    def _check_context(self, context: float) -> None:
        if self.order or len(self.contrast) != 2 or self.contrast[0] != self.contrast[1]:
            raise self._wrong(
                f"contrast={self.contrast} with context: compares an arm with itself; write "
                "contrast: [ALiBi, ALiBi]"
            )
        of_loss = self.measure == LOSS and self.unit == NATS and self.expect != FAILS
        if context <= 0 or context == 1 or not of_loss:
            raise self._wrong(
                f"context={context:g} needs a multiple of the trained context other than 1, where "
                f"the loss in {NATS} is better, worse or equivalent"
            )

    def _wrong(self, reason: str) -> InputError:
        return InputError(f"study.published, {self.claim!r}: {reason}.")
