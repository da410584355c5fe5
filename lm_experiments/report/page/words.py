"""Which arm won, and how sure that is: the verdicts of a table as sentences."""

from __future__ import annotations

from collections.abc import Mapping

from lm_experiments.report.statistics.compare import Comparison
from lm_experiments.report.statistics.verdicts import (
    BETTER,
    EQUIVALENT,
    EXPLORATORY,
    UNRESOLVED,
    WORSE,
)
from lm_experiments.report.table.columns import interval_text, p_text
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.report.table.warnings import listed
from lm_experiments.rundir.measures import MEASURE_TITLES, UNITS, sign_of

_SAID: Mapping[str, str] = {
    BETTER: "{} is better than {}",
    WORSE: "{} is worse than {}",
    EQUIVALENT: "{} is equivalent to {}, within the declared margin",
    UNRESOLVED: "These seeds do not tell {} from {}",
    EXPLORATORY: "{} against {} is exploratory, so that nothing is claimed",
}
# What a reader asks for first.
_ORDER = (BETTER, EQUIVALENT, UNRESOLVED, WORSE)


def answer(table: Table) -> str:
    """Return a sentence or two on which arm won, and no more than the verdicts allow."""
    if not table.sweep.complete:
        return "There is no answer yet: verdicts wait until every run has ended."
    ranked = [row for row in table.rows if row.loss and not any(r.failing for r in row.runs)]
    if not ranked:
        return "There is no answer: no arm has a usable final loss for all of its runs."
    best, measure = ranked[0], MEASURE_TITLES[table.metric]
    assert best.loss is not None
    end = "lowest" if sign_of(table.metric) > 0 else "highest"
    role = ", the baseline," if best.is_baseline and best.arm != "baseline" else ""
    lowest = f"{best.arm}{role} has the {end} {measure}, {best.loss.mean:.4f} {_unit(table)}."
    return " ".join(part for part in (lowest, _claim(table, best), _untested(table, best)) if part)


def sentences(table: Table) -> list[tuple[str, str]]:
    """Return each contrast as its verdict and a sentence, what is claimed before what is not."""
    items = [item for item in table.comparisons if not item.control]
    sign = sign_of(table.metric)
    items.sort(key=lambda item: (_rank(item), sign * item.contrast.mean if item.contrast else 0.0))
    return [(item.verdict, f"{_said(item)}{_numbers(item, table)}.") for item in items]


def _rank(item: Comparison) -> int:
    return _ORDER.index(item.verdict) if item.verdict in _ORDER else len(_ORDER)


def _said(item: Comparison, arm: str = "") -> str:
    """Return what the verdict claims, of the item's arm or of what is said in its place."""
    said = _SAID.get(item.verdict, f"{{}} against {{}}: {item.verdict}")
    return said.format(arm or item.arm, item.reference)


def _numbers(item: Comparison, table: Table) -> str:
    found = item.contrast
    if found is None:
        return ""
    interval = "" if found.low is None else f", 95 % interval {interval_text(found)}"
    p = "" if found.adjusted_p is None else f", p {p_text(found.adjusted_p)}"
    return f": {found.mean:+.4f} {_unit(table)}{interval}{p}, n = {found.n}"


def _claim(table: Table, best: Row) -> str:
    if best.comparison:
        claim = _said(best.comparison, "it")
        return f"{claim[:1].upper()}{claim[1:]}."
    others = any(
        item.verdict in (BETTER, EQUIVALENT, UNRESOLVED, WORSE) for item in table.comparisons
    )
    better = any(item.verdict == BETTER for item in table.comparisons)
    return "No arm is shown to be better than its reference." if others and not better else ""


def _untested(table: Table, best: Row) -> str:
    """Say what the lowest loss does not show: that the arm beats the others that are better."""
    better = [
        item.arm
        for item in table.comparisons
        if item.verdict == BETTER and table.same_rung(item.arm, best.arm)
    ]
    tested = {arm for pair in table.plan.pairs if best.arm in pair for arm in pair}
    others = [arm for arm in better if arm not in tested]
    if best.arm not in better or not others:
        return ""
    return f"Whether it is also better than {listed(others)} was not tested."


def _unit(table: Table) -> str:
    return UNITS[table.metric]
