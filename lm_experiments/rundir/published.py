"""What papers claim, as a study's ``published:`` block declares it before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from lm_experiments.errors import InputError
from lm_experiments.rundir.measures import MEASURES

# What a source expects of the arm beside its reference, or of several arms.
BETTER, WORSE, EQUIVALENT, FAILS, ORDER = "better", "worse", "equivalent", "fails", "order"
EXPECTED = (BETTER, WORSE, EQUIVALENT, FAILS, ORDER)
NATS, BITS = "nats/token", "bits/byte"
SIGNS = {measure.short: measure.sign for measure in MEASURES.values()}
UNITS = tuple(SIGNS)
# Fewer arms can be in a given order too easily: that of three is right by chance one time in six.
FEWEST_ORDERED = 4


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
        expect: better, worse, equivalent, fails or order.
        contrast: [arm, reference], for all but an order.
        order: of an order, each arm with its published value, the best first.
        range: the lowest and the highest difference that agree with the claim, in its unit; null
            takes the span of the sources' differences, and without any the sign alone is compared.
        unit: nats/token; bits/byte where the source counts characters or bytes; accuracy or exact
            match of a synthetic task, of which more is better.
        sources: who found it.
        why: why a small run may differ.
    """

    claim: str
    expect: str
    contrast: list[str] = field(default_factory=list)
    order: dict[str, float] = field(default_factory=dict)
    range: list[float] | None = None
    unit: str = NATS
    sources: list[Source] = field(default_factory=list)
    why: str = ""

    def __post_init__(self) -> None:
        for key, value, allowed in (
            ("expect", self.expect, EXPECTED),
            ("unit", self.unit, UNITS),
        ):
            if value not in allowed:
                raise self._wrong(f"{key}={value} is not known; it can be {', '.join(allowed)}")
        if not self.sources:
            raise self._wrong("there are no sources; write sources: [{source: ..., read: ...}]")
        if self.expect == ORDER:
            self._check_order()
        else:
            self._check_contrast()

    @property
    def sign(self) -> int:
        """1 where lower values in its unit are better, else -1."""
        return SIGNS[self.unit]

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
        arm, reference = self.contrast
        at = "" if self.span is None else f", {self.span[0]:g} to {self.span[1]:g} {self.unit}"
        return f"{arm} - {reference}: {self.expect}{at}"

    def _check_order(self) -> None:
        values = list(self.order.values())
        if self.contrast or self.range:
            raise self._wrong("expect: order has neither contrast: nor range:; leave them out")
        if len(values) < FEWEST_ORDERED or values != sorted(values, reverse=self.sign < 0):
            raise self._wrong(
                f"order={self.order} needs {FEWEST_ORDERED} arms or more with their values, the "
                "best first; write order: {SwiGLU: 1.944, ReLU: 1.997, ...}"
            )

    def _check_contrast(self) -> None:
        if self.order or len(self.contrast) != 2 or self.contrast[0] == self.contrast[1]:
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
        costs = [] if self.span is None else sorted(self.sign * end for end in self.span)
        away = bool(costs) and (
            (self.expect == WORSE and costs[1] <= 0) or (self.expect == BETTER and costs[0] >= 0)
        )
        if away:
            raise self._wrong(
                f"expect: {self.expect} goes against its differences, {self.published}, of which "
                f"those {'below' if self.sign > 0 else 'above'} zero are better"
            )

    def _wrong(self, reason: str) -> InputError:
        return InputError(f"study.published, {self.claim!r}: {reason}.")
