"""Draw every contrast with its 95 % interval against zero and the margin: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lm_experiments.report.pictures.figure import INK, nearest, picture, plain_frame, shortened
from lm_experiments.report.statistics.compare import Comparison
from lm_experiments.report.statistics.contrasts import Contrast
from lm_experiments.report.statistics.verdicts import BETTER, EQUIVALENT, WORSE
from lm_experiments.report.table.columns import LOSS_TITLES, UNITS, common_setting, interval_text
from lm_experiments.report.table.notes import headline
from lm_experiments.report.table.rows import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW_HEIGHT, TOP, BOTTOM = 10.0, 0.36, 0.62, 0.72
CHARACTER_WIDTH = 0.083
WORD_WIDTH = 0.073
FAR = 8.0
LONGEST_LABEL = 34
MOST_ROWS = 60
COLORS = {BETTER: "#0072b2", WORSE: "#d55e00", EQUIVALENT: "#009e73"}
NEUTRAL, MARGIN_COLOR = "#666666", "#eef1f4"


def draw_forest(table: Table, path: Path) -> bool:
    """Write the picture as PNG; False, and no file, without a contrast that has an interval.

    Arms without a loss keep their row, with the verdict in words. In a tuned study the small
    hollow diamonds are the same contrasts at the setting all arms share.
    """
    items = ordered(table)
    known = [c for item in items if (c := item.contrast) is not None]
    if not any(contrast.half_width is not None for contrast in known):
        return False
    shown = items[:MOST_ROWS]
    height = TOP + BOTTOM + ROW_HEIGHT * len(shown)
    labels = [_label(item, table) for item in shown]
    left = (max(map(len, labels)) * CHARACTER_WIDTH + 0.25) / WIDTH
    numbers = max(len(_numbers(item)) for item in shown) * WORD_WIDTH
    right = (numbers + max(len(_word(item)) for item in shown) * WORD_WIDTH + 0.4) / WIDTH
    with picture(path, (WIDTH, height)) as figure:
        panel = (left, BOTTOM / height, 1 - left - right, 1 - (TOP + BOTTOM) / height)
        axes = figure.add_axes(panel)
        _frame(axes, table, labels)
        title = _title(table, len(items))
        figure.text(0.1 / WIDTH, 1 - 0.3 / height, title, size=12, color=INK, va="center")
        axes.set_xlim(*limits(known, table.plan.margin))
        for place, item in enumerate(shown):
            _row(axes, place, item)
            _words(axes, place, item, 72 * numbers)
        if table.tune:
            _common(axes, table, shown)
    return True


def ordered(table: Table) -> list[Comparison]:
    """All contrasts, in the order of the table's rows."""
    return [item for row in table.rows for item in row.main.comparisons]


def limits(contrasts: Sequence[Contrast], margin: float | None) -> tuple[float, float]:
    """The x limits that hold zero, the margin and all intervals but those far out."""
    ends = [(c.mean - (c.half_width or 0.0), c.mean + (c.half_width or 0.0)) for c in contrasts]
    reach = [max(abs(low), abs(high)) for low, high in ends]
    furthest = nearest([max(far, margin or 0.0) for far in reach], FAR)
    near = [end for end, far in zip(ends, reach, strict=True) if far <= furthest]
    edges = [0.0, *(edge for pair in near for edge in pair), *((-margin, margin) if margin else ())]
    low, high = min(edges), max(edges)
    room = 0.06 * (high - low) or 0.01
    return low - room, high + room


def _title(table: Table, count: int) -> str:
    at = f", each arm at its own best {table.tune.key}" if table.tune else ""
    left_out = f" (the first {MOST_ROWS} of {count})" if count > MOST_ROWS else ""
    state = "" if table.sweep.complete else f"; {headline(table).partition(',')[0]}"
    measure = "validation loss" if table.metric == "val_loss" else LOSS_TITLES[table.metric]
    return f"{table.sweep.record.name}: difference in {measure}{at}{left_out}{state}"


def _label(item: Comparison, table: Table) -> str:
    several = {reference for _, reference in table.plan.pairs} != {table.baseline}
    text = f"{item.arm} - {item.reference}" if several else item.arm
    return shortened(f"{text} (control)" if item.control else text, LONGEST_LABEL)


def _numbers(item: Comparison) -> str:
    found = item.contrast
    if found is None:
        return ""
    interval = f" {interval_text(found)}" if found.half_width is not None else ""
    return f"{found.mean:+.4f}{interval}"


def _word(item: Comparison) -> str:
    return item.verdict.partition(":")[0]


def _frame(axes: Axes, table: Table, labels: Sequence[str]) -> None:
    plain_frame(axes, "x")
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    references = {reference for _, reference in table.plan.pairs}
    against = f"arm - {references.pop()}" if len(references) == 1 else "arm - reference"
    unit, margin = UNITS[table.metric], table.plan.margin
    axes.set_xlabel(f"{against} ({unit}), 95 % interval; below zero is better", color=INK)
    axes.axvline(0.0, color=INK, linewidth=0.9, zorder=2)
    if margin is not None:
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


def _row(axes: Axes, place: int, item: Comparison) -> None:
    color = COLORS.get(item.verdict, NEUTRAL)
    found = item.contrast
    if found is None:
        return
    low, high = axes.get_xlim()
    if not low <= found.mean <= high:
        side, mark = (low, "<") if found.mean < low else (high, ">")
        axes.plot([side], [place], mark, color=color, markersize=7, clip_on=False, zorder=4)
        return
    if found.low is not None and found.high is not None:
        axes.plot([found.low, found.high], [place, place], color=color, linewidth=1.8, zorder=3)
    failing = "fails" in item.verdict
    mark = "D" if item.control else "o"
    face = "white" if failing else color
    axes.plot([found.mean], [place], mark, color=color, markerfacecolor=face, ms=6.5, zorder=4)


def _words(axes: Axes, place: int, item: Comparison, indent: float) -> None:
    """The numbers and the verdict, right of the panel in two columns."""
    for text, shift in ((_numbers(item), 10.0), (_word(item), 14.0 + indent)):
        axes.annotate(
            text,
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(shift, 0),
            textcoords="offset points",
            va="center",
            size=9,
            color=COLORS.get(item.verdict, INK),
        )


def _common(axes: Axes, table: Table, shown: Sequence[Comparison]) -> None:
    """The same contrasts at the setting that all arms share."""
    sides = [row.common for row in table.rows if row.common is not None]
    found = {(c.arm, c.reference): c.contrast for side in sides for c in side.comparisons}
    low, high = axes.get_xlim()
    inside = []
    for place, item in enumerate(shown):
        contrast = found.get((item.arm, item.reference))
        if contrast and low <= contrast.mean <= high:
            inside.append((contrast.mean, place + 0.27))
    if not inside:
        return
    xs, ys = zip(*inside, strict=True)
    axes.plot(xs, ys, "D", color=NEUTRAL, markerfacecolor="white", markersize=3.8, zorder=3)
    axes.annotate(
        f"small diamonds: at {common_setting(table)}",
        (0.0, 0.0),
        xycoords="axes fraction",
        xytext=(0, -40),
        textcoords="offset points",
        size=8,
        color=NEUTRAL,
    )
