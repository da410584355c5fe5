"""Draw each difference of a ladder against training compute, with its interval and its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lm_experiments.report.pictures.curves import spread
from lm_experiments.report.pictures.figure import (
    COLORS,
    DASHES,
    INK,
    picture,
    plain_frame,
    shortened,
)
from lm_experiments.report.statistics.contrasts import Contrast
from lm_experiments.report.statistics.ladder import LadderContrast, LadderFindings
from lm_experiments.report.table.columns import si
from lm_experiments.report.table.ladder import contrast_label
from lm_experiments.report.table.rows import Table
from lm_experiments.rundir.measures import UNITS, zero_said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_INCHES = (10.0, 5.0)
LEFT, BOTTOM, HEIGHT = 0.085, 0.16, 0.75
CHARACTER_WIDTH, LABEL_GAP, LABEL_LINE = 0.0072, 0.025, 0.05
LONGEST_LABEL, MOST_LINES = 48, 18


def draw_ladder(table: Table, path: Path | None = None) -> Figure | None:
    """Draw the picture, into a file with `path`; None without a ladder whose compute is known.

    A line for each contrast through its differences, a band between their 95 % intervals. Of more
    than `MOST_LINES` contrasts the first are drawn.
    """
    found = table.ladder
    lines = drawable(found)[:MOST_LINES] if found else []
    if found is None or not lines:
        return None
    labels = [shortened(f"{contrast_label(i)}: {i.verdict}", LONGEST_LABEL) for i in lines]
    right = CHARACTER_WIDTH * max(map(len, labels)) + LABEL_GAP
    with picture(path, SIZE_INCHES) as figure:
        axes = figure.add_axes((LEFT, BOTTOM, 1 - LEFT - right, HEIGHT))
        compute = [flops for flops in found.compute if flops is not None]
        _frame(axes, table, found, compute)
        for place, item in enumerate(lines):
            _line(axes, compute, contrasts_of(item), place)
        _labels(axes, [(compute[-1], contrasts_of(i)[-1].mean) for i in lines], labels)
    return figure


def drawable(found: LadderFindings) -> list[LadderContrast]:
    """The contrasts that have a difference at every rung; none before all compute is known."""
    if None in found.compute:
        return []
    return [item for item in found.contrasts if len(contrasts_of(item)) == len(found.compute)]


def contrasts_of(item: LadderContrast) -> list[Contrast]:
    """The differences at the rungs that have one."""
    return [rung.contrast for rung in item.rungs if rung.contrast is not None]


def _frame(axes: Axes, table: Table, found: LadderFindings, compute: Sequence[float]) -> None:
    from matplotlib.ticker import NullLocator

    plain_frame(axes, "y")
    axes.set_xscale("log", base=2)
    names = [rung.label for rung in found.ladder.rungs]
    ticks = [f"{name}\n{si(flops)} FLOPs" for name, flops in zip(names, compute, strict=True)]
    axes.set_xticks(compute, ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axhline(0.0, color=INK, linewidth=0.9, zorder=2)
    title = f"{table.sweep.record.name}: does it last? ({zero_said(table.metric)})"
    axes.set_title(title, loc="left", color=INK)
    axes.set_xlabel(f"training compute of {found.ladder.baseline}, log scale", color=INK)
    unit = UNITS[table.metric]
    axes.set_ylabel(f"difference ({unit}), band: 95 % interval", color=INK)


def _line(axes: Axes, compute: Sequence[float], rungs: Sequence[Contrast], place: int) -> None:
    turn, color = divmod(place, len(COLORS))
    look, dashes = COLORS[color], DASHES[turn % len(DASHES)]
    means = [rung.mean for rung in rungs]
    axes.plot(compute, means, "o", ls=dashes, color=look, ms=5, mfc="white", lw=1.6, zorder=4)
    low = [rung.low for rung in rungs if rung.low is not None]
    high = [rung.high for rung in rungs if rung.high is not None]
    if len(low) == len(rungs):
        axes.fill_between(compute, low, high, color=look, alpha=0.13, linewidth=0)


def _labels(axes: Axes, ends: Sequence[tuple[float, float]], labels: Sequence[str]) -> None:
    """Name each line beside the panel, led from its last point, where no name covers another."""
    low, high = axes.get_ylim()
    in_axes = axes.transData + axes.transAxes.inverted()
    order = sorted(range(len(ends)), key=lambda at: ends[at][1])
    places = spread([ends[at][1] for at in order], LABEL_LINE * (high - low), low, high)
    for at, place in zip(order, places, strict=True):
        (left, end), elbow = in_axes.transform(ends[at]), (place - low) / (high - low)
        look = COLORS[at % len(COLORS)]
        xs, ys = (left, 1 + 0.85 * LABEL_GAP), (end, elbow)
        axes.plot(xs, ys, color=look, lw=0.7, clip_on=False, transform=axes.transAxes)
        spot = (1 + LABEL_GAP, elbow)
        axes.text(*spot, labels[at], transform=axes.transAxes, va="center", size=9, color=INK)
