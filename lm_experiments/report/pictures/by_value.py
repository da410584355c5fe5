"""Draw the final loss by the value of a swept number, such as 41 learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_experiments.report.pictures.figure import (
    COLORS,
    DASHES,
    INK,
    nearest,
    picture,
    plain_frame,
    shortened,
)
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.rundir.measures import MEASURE_TITLES, UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_INCHES = (8.0, 5.0)
# Fewer values are arms to tell apart, not a line; more lines are not told apart.
FEWEST_VALUES, MOST_LINES = 5, len(COLORS)
FAR = 4.0
LONGEST_LABEL = 40


@dataclass
class Line:
    """The losses along the number, for one choice of everything else.

    `points` are (value, mean, sd over seeds); `failed` are the values without a loss.
    """

    label: str
    points: list[tuple[float, float, float]] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)


def draw_by_value(table: Table, path: Path | None = None) -> Figure | None:
    """Draw the picture, into a file with `path`; None where no swept axis has five numbers.

    Arms without a loss are crosses at the upper edge, and losses beyond it are arrows there.
    """
    at = numeric_axis(table)
    lines = [] if at is None else lines_of(table, at)
    if at is None or not any(line.points for line in lines) or len(lines) > MOST_LINES:
        return None
    with picture(path, SIZE_INCHES) as figure:
        axes = figure.add_axes((0.095, 0.12, 0.87, 0.79))
        _frame(axes, table, at, lines)
        for order, line in enumerate(lines):
            _draw(axes, line, order)
        if len(lines) > 1:
            axes.legend(frameon=False, fontsize=9)
    return figure


def numeric_axis(table: Table) -> int | None:
    """The place of the swept axis with the most values, where these are five numbers or more."""
    levels = [{row.levels[i] for row in table.rows} for i in range(len(table.axes))]
    counts = [len(own) if all(map(_is_number, own)) else 0 for own in levels]
    return counts.index(max(counts)) if counts and max(counts) >= FEWEST_VALUES else None


def lines_of(table: Table, at: int) -> list[Line]:
    """The losses along an axis, a line for each choice of the others, in declared order."""
    lines: dict[tuple[str, ...], Line] = {}
    order = {arm: place for place, arm in enumerate(table.sweep.arms)}
    for row in sorted(table.rows, key=lambda row: (float(row.levels[at]), order[row.arm])):
        others = (*row.levels[:at], *row.levels[at + 1 :])
        line = lines.setdefault(others, Line(shortened(" ".join(others), LONGEST_LABEL)))
        _add(line, row, float(row.levels[at]))
    return list(lines.values())


def _add(line: Line, row: Row, value: float) -> None:
    if row.loss is not None:
        line.points.append((value, row.loss.mean, row.loss.sd or 0.0))
    elif any(run.failing for run in row.runs):
        line.failed.append(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _frame(axes: Axes, table: Table, at: int, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    plain_frame(axes, "y")
    losses = [mean for line in lines for _, mean, _ in line.points]
    low = min(losses)
    high = low + nearest([loss - low for loss in losses], FAR)
    room = 0.08 * (high - low) or 0.01 * abs(low) or 1.0
    axes.set_ylim(low - room, high + room)
    values = [v for line in lines for v in (*(p[0] for p in line.points), *line.failed)]
    if min(values) > 0 and max(values) >= 10 * min(values):
        axes.set_xscale("log")
        # The usual ones are formulas, which arms' labels must not be read as.
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    measure, key = MEASURE_TITLES[table.metric], table.axes[at]
    seeds = ", mean and sd over seeds" if table.most_seeds > 1 else ""
    axes.set_title(f"{table.sweep.record.name}: {measure} by {key}{seeds}", loc="left", color=INK)
    far = any(loss > high + room for loss in losses)
    signs = ["cross: failed"] * any(line.failed for line in lines) + ["up: off the scale"] * far
    axes.set_xlabel(f"{key} ({'; '.join(signs)})" if signs else key, color=INK)
    axes.set_ylabel(f"{measure} ({UNITS[table.metric]})", color=INK)


def _draw(axes: Axes, line: Line, order: int) -> None:
    low, high = axes.get_ylim()
    look: dict[str, Any] = {"color": COLORS[order], "zorder": 3 + order / 1000}
    xs, means, sds = zip(*line.points, strict=True) if line.points else ((), (), ())
    dashes = DASHES[order % len(DASHES)]
    axes.plot(xs, means, "o", ms=4, mfc="white", ls=dashes, lw=1.6, label=line.label, **look)
    if any(sds):
        axes.errorbar(xs, means, sds, fmt="none", elinewidth=1.0, ecolor=COLORS[order])
    top = high - (0.015 + 0.025 * order) * (high - low)
    above = [x for x, mean, _ in line.points if mean > high]
    axes.plot(above, [top] * len(above), "^", ms=5, **look)
    axes.plot(line.failed, [top] * len(line.failed), "x", ms=6, **look)
