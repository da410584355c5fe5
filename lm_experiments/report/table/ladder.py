"""The section of a table on a ladder: each difference at each rung, its slope, and the verdict."""

from __future__ import annotations

from lm_experiments.report.statistics.compare import Comparison
from lm_experiments.report.statistics.ladder import Agreement, LadderContrast, LadderFindings
from lm_experiments.report.statistics.trend import KEPT
from lm_experiments.report.statistics.verdicts import LEVEL
from lm_experiments.report.table.columns import (
    NOTHING,
    fixed,
    interval_text,
    p_text,
    si,
)
from lm_experiments.report.table.rows import Table
from lm_experiments.report.table.section import Section
from lm_experiments.report.table.warnings import listed
from lm_experiments.rundir.ladder import (
    BUDGET,
    FIXED,
    MUP,
    SIZE,
    TOKENS_PER_PARAMETER,
    TRUNK,
    TUNED_EACH,
)
from lm_experiments.rundir.measures import UNITS, zero_said

HEADING = "Does it last? The ladder"
_DIFFER = {
    BUDGET: "the number of steps, with schedule and warm-up in proportion",
    SIZE: "the size of the model",
    TOKENS_PER_PARAMETER: "the size of the model, and the tokens in proportion to it",
}
_ON_TRUNK = "the number of steps, with the decay in proportion and one warm-up for all"
_RATES = {
    FIXED: (
        "The learning rate is the same at all rungs, so that the slope also holds how far each "
        "arm's best rate moves away from it"
    ),
    TUNED_EACH: (
        "The learning rate is tuned for each arm at each rung; the noise of these choices is in "
        "the intervals as far as it is known"
    ),
    MUP: "The learning rate is carried from rung to rung by muP, and not tuned again",
}
RULE = (
    f"Verdicts, at .{str(LEVEL)[2:]} adjusted after Holm over the contrasts of the ladder: shrinks "
    "and grows need a certain slope, towards zero or away from it, and flips two certain "
    f"differences of opposite signs; holds needs evidence that between {KEPT:.2f} and "
    f"{1 / KEPT:.2f} of the first rung's difference is there at every later one; everything else "
    "is unresolved. They are about these rungs; nothing is extrapolated."
)


def ladder_section(table: Table) -> Section:
    """The section; of a study without a ladder, one without rows and notes."""
    found = table.ladder
    rungs = [rung.label for rung in found.ladder.rungs] if found else []
    titles = ("contrast", *rungs, "slope per doubling", "95 % interval", "p (Holm)", "verdict")
    rows = tuple(map(ladder_cells, found.contrasts if found else ()))
    return Section(HEADING, titles, rows, tuple(ladder_notes(table)), figure="ladder")


def contrast_label(item: LadderContrast) -> str:
    """The declared contrast, such as "silu - swiglu"."""
    return f"{item.arm} - {item.reference}"


def ladder_cells(item: LadderContrast) -> tuple[str, ...]:
    """The texts under the section's titles."""
    slope = item.trend.slope if item.trend else None
    return (
        contrast_label(item),
        *map(rung_text, item.rungs),
        fixed(slope.mean if slope else None, "+.4f"),
        interval_text(slope),
        p_text(slope.adjusted_p if slope else None),
        item.verdict,
    )


def rung_text(item: Comparison) -> str:
    """The difference at a rung with its 95 % interval."""
    if item.contrast is None:
        return NOTHING
    interval = interval_text(item.contrast)
    mean = fixed(item.contrast.mean, "+.4f")
    return mean if interval == NOTHING else f"{mean} {interval}"


def ladder_notes(table: Table) -> list[str]:
    """How to read a ladder: unit, rungs, learning rate, rule, and how far ranks agree."""
    found = table.ladder
    if found is None:
        return []
    by, rate = found.ladder.by, found.ladder.rate
    trunk = found.ladder.trunk
    differ = _ON_TRUNK if trunk else _DIFFER[by]
    return [
        f"{UNITS[table.metric]}, arm minus reference, paired by seed; "
        f"{zero_said(table.metric)}. The slope is each seed's "
        f"least-squares slope against log2 of the compute of {found.ladder.baseline}, with the t "
        "interval of its mean over the seeds that all rungs have.",
        f"Rungs differ in {differ}: {'; '.join(_rungs(table, found))}. {_RATES[rate]}.",
        *([f"{TRUNK}; the intervals, over seeds, hold all the same."] if trunk else []),
        *([] if any(item.trend for item in found.contrasts) else [_no_slope(found)]),
        RULE,
        *_agreement(found),
    ]


def _rungs(table: Table, found: LadderFindings) -> list[str]:
    """The scale of each rung, as the baseline has it there."""
    rows = {row.arm: row for row in table.rows}
    lines = []
    for rung, compute in zip(found.ladder.rungs, found.compute, strict=True):
        row = rows[rung.arms[found.ladder.baseline]]
        scale = f"{si(row.first('parameters'))} parameters, {si(row.first('tokens'))} tokens"
        lines.append(f"{rung.label} ({scale}, {si(compute)} FLOPs)")
    return lines


def _no_slope(found: LadderFindings) -> str:
    if None in found.compute:
        return "There is no slope yet: the compute of a rung is not known before one of its runs."
    return "There is no slope: the rungs of a contrast share no seed, or compute does not rise."


def _agreement(found: LadderFindings) -> list[str]:
    """How far the ranks of three arms or more agree between rungs."""
    if not found.agreement:
        return []
    arms = found.agreement[0].arms
    parts = "; ".join(map(_agreed, found.agreement))
    return [
        f"Agreement of ranks between rungs, Kendall's tau over the {len(arms)} arms "
        f"{listed(arms)} by seed: {parts}. (1 + tau) / 2 is the share of pairs in the same order."
    ]


def _agreed(item: Agreement) -> str:
    interval = f"[{item.low:+.2f}, {item.high:+.2f}]"
    return f"{item.lower} to {item.upper} {item.tau:+.2f} {interval} over {item.seeds} seeds"
