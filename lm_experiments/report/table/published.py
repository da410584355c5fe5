"""The words for published claims: the cells of their columns, and the sentences in the notes."""

from __future__ import annotations

from collections.abc import Sequence

from lm_experiments.report.statistics.compare import Comparison
from lm_experiments.report.statistics.published import NOT_TESTABLE, Finding
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.rundir.published import EQUIVALENT, LOSS, NATS, Claim, Source
from lm_experiments.rundir.words import counted

RULE = (
    "Published claims are held against these runs by a rule fixed before training: holds has the "
    "claimed sign after adjustment and an interval that meets the published range; does not hold "
    "has the opposite sign, or is equivalent where a difference is claimed. Every verdict is about "
    "this scale, and none refutes or confirms what was found at another."
)
_PREFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def of_row(table: Table, row: Row) -> list[Finding]:
    """The claims about the difference that a row shows."""
    item = row.comparison
    pair = [item.arm, item.reference] if item else []
    claims = [found for found in table.published if found.claim.measure == LOSS]
    return [found for found in claims if pair and found.claim.contrast == pair]


def published_text(findings: Sequence[Finding]) -> str:
    """What was published of a row's contrast; empty for nothing."""
    return "; ".join(found.claim.published for found in findings)


def verdict_text(findings: Sequence[Finding]) -> str:
    """The verdicts on what was published; empty for nothing."""
    return "; ".join(found.verdict for found in findings)


def published_range(findings: Sequence[Finding], item: Comparison) -> tuple[float, float] | None:
    """The published range of a contrast in the table's unit; None without one."""
    pair = [item.arm, item.reference]
    spans = [found.span for found in findings if found.span and found.claim.contrast == pair]
    return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None


def claim_notes(table: Table) -> list[str]:
    """The rule, and each claim with its sources and its verdict; nothing without claims."""
    return [RULE, *(sentence(found, table) for found in table.published)] if table.published else []


def sentence(found: Finding, table: Table) -> str:
    """A claim, who found it at which scale, and what is found here."""
    claim = found.claim
    sources = "; ".join(source_text(source, claim) for source in claim.sources)
    return f"Published: {claim.claim} ({claim_text(claim)}). {sources}. {here_text(found, table)}"


def claim_text(claim: Claim) -> str:
    """The contrast and what is expected of it, or the order."""
    if claim.order:
        return ", ".join(f"{arm} {value:g}" for arm, value in claim.order.items())
    tolerance = claim.expect == EQUIVALENT and claim.range is not None
    joined = " within" if tolerance else ", at" if claim.expect == EQUIVALENT else " by"
    figures = "" if claim.span is None else f"{joined} {claim.published}"
    unit = f" {NATS}" if figures and claim.unit == NATS else ""
    return f"{claim.of}{' - '.join(claim.sides)}: {claim.expect}{figures}{unit}"


def source_text(source: Source, claim: Claim) -> str:
    """A source with its scale, its number of runs, its figure and where that was read."""
    tokens = "" if source.tokens is None else f"{amount(source.tokens)} tokens"
    runs = "runs not stated" if source.runs is None else counted(source.runs, "run")
    scale = ", ".join(text for text in (source.model, tokens, runs) if text)
    said = figure_text(source, claim)
    return f"{source.source} ({scale}): {said}{', ' if said else ''}read in {source.read}"


def figure_text(source: Source, claim: Claim) -> str:
    """What a source found: the difference with its unit, and what it says besides."""
    figure = "" if source.difference is None else f"{source.difference:+g} {claim.unit}"
    return ", ".join(text for text in (figure, source.value) if text)


def here_text(found: Finding, table: Table) -> str:
    """What is found here, with the scale it is found at."""
    if found.verdict == NOT_TESTABLE:
        return f"Here: {NOT_TESTABLE}, {found.reason}."
    return (
        f"Here, with {scale_text(found.claim, table)}: {found.here}; {found.verdict} at this scale."
    )


def scale_text(claim: Claim, table: Table) -> str:
    """The parameters and training tokens of a claim's first arm here."""
    row = next((row for row in table.rows if row.arm == claim.arms[0]), None)
    parameters, tokens = (row.first(name) if row else None for name in ("parameters", "tokens"))
    return f"{amount(parameters)} parameters and {amount(tokens)} tokens"


def amount(value: float | None) -> str:
    """A count to three digits as papers write it, such as 124M or 2.2B."""
    if value is None:
        return "unknown"
    size, prefix = next(((s, p) for s, p in _PREFIXES if value >= 0.9995 * s), (1.0, ""))
    return f"{value / size:.3g}{prefix}"
