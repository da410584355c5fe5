"""Draw every contrast with its 95 % interval against zero and the margin: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lm_experiments.report.pictures.intervals import (
    MOST_ROWS,
    NEUTRAL,
    Bar,
    explain,
    interval_panel,
    shown_of,
)
from lm_experiments.report.statistics.compare import Comparison
from lm_experiments.report.statistics.verdicts import BETTER, EQUIVALENT, WORSE
from lm_experiments.report.table.columns import common_setting
from lm_experiments.report.table.notes import headline
from lm_experiments.report.table.published import published_range
from lm_experiments.report.table.rows import Table
from lm_experiments.rundir.measures import MEASURE_TITLES, UNITS, zero_said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {BETTER: "#0072b2", WORSE: "#d55e00", EQUIVALENT: "#009e73"}
MARGIN_COLOR = "#eef1f4"


def draw_forest(table: Table, path: Path | None = None) -> Figure | None:
    """Draw the picture, into a file with `path`; None without a contrast that has an interval.

    Arms without a loss keep their row, with the verdict in words. In a tuned study the small
    hollow diamonds are the same contrasts at the setting all arms share. An arm called equivalent
    has the interval that decides so as a broad band, against the margin's. Empty bars are
    published ranges.
    """
    items = ordered(table)
    known = [c for item in items if (c := item.contrast) is not None]
    if not any(contrast.half_width is not None for contrast in known):
        return None
    bars, margin = [_bar(item, table) for item in items], table.plan.margin
    title, x_label = _title(table, len(bars)), _x_label(table)
    with interval_panel(path, title, x_label, bars, margin) as (figure, axes):
        if margin is not None:
            _margin(axes, margin)
        diamonds = table.tune and _common(axes, table, items[:MOST_ROWS])
        bands = any(bar.wide for bar in bars[:MOST_ROWS])
        meanings = {
            f"small diamonds: at {common_setting(table)}": diamonds,
            "broad bands: the interval that decides equivalence": bands,
            "empty bars: published ranges": any(bar.hollow for bar in bars[:MOST_ROWS]),
        }
        explain(axes, [text for text, there in meanings.items() if there])
    return figure


def ordered(table: Table) -> list[Comparison]:
    """All contrasts, in the order of the table's rows."""
    return [item for row in table.rows for item in row.main.comparisons]


def _bar(item: Comparison, table: Table) -> Bar:
    several = {reference for _, reference in table.plan.pairs} != {table.baseline}
    text = f"{item.arm} - {item.reference}" if several else item.arm
    within = item.contrast.within if item.contrast else None
    return Bar(
        f"{text} (control)" if item.control else text,
        item.contrast,
        item.verdict.partition(":")[0],
        COLORS.get(item.verdict),
        mark="D" if item.control else "o",
        filled="fails" not in item.verdict,
        wide=(within.low, within.high) if within and item.verdict == EQUIVALENT else None,
        hollow=published_range(table.published, item),
    )


def _title(table: Table, count: int) -> str:
    at = f", each arm at its own best {table.tune.key}" if table.tune else ""
    state = "" if table.sweep.complete else f"; {headline(table).partition(',')[0]}"
    measure = "validation loss" if table.metric == "val_loss" else MEASURE_TITLES[table.metric]
    return f"{table.sweep.record.name}: difference in {measure}{at}{shown_of(count)}{state}"


def _x_label(table: Table) -> str:
    references = {reference for _, reference in table.plan.pairs}
    against = f"arm - {references.pop()}" if len(references) == 1 else "arm - reference"
    return f"{against} ({UNITS[table.metric]}), 95 % interval; {zero_said(table.metric)}"


def _margin(axes: Axes, margin: float) -> None:
    axes.axvspan(-margin, margin, color=MARGIN_COLOR, zorder=0)
    axes.annotate(
        f"margin {margin:g}",
        (0.0, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        size=8,
        color=NEUTRAL,
    )


def _common(axes: Axes, table: Table, shown: Sequence[Comparison]) -> bool:
    """Draw the same contrasts at the setting that all arms share, where they are in the panel."""
    sides = [row.common for row in table.rows if row.common is not None]
    found = {(c.arm, c.reference): c.contrast for side in sides for c in side.comparisons}
    low, high = axes.get_xlim()
    inside = []
    for place, item in enumerate(shown):
        contrast = found.get((item.arm, item.reference))
        if contrast and low <= contrast.mean <= high:
            inside.append((contrast.mean, place + 0.27))
    if not inside:
        return False
    xs, ys = zip(*inside, strict=True)
    axes.plot(xs, ys, "D", color=NEUTRAL, markerfacecolor="white", markersize=3.8, zorder=3)
    return True
