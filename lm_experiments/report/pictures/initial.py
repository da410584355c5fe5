"""Draw what layers do at initialisation, arms side by side, and a check over widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lm_experiments.report.pictures.figure import COLORS, DASHES, INK, picture, plain_frame, wrapped
from lm_experiments.rundir.diagnostics import (
    ENTROPY,
    GRADIENT,
    LARGEST,
    STATISTICS,
    STREAM,
    by_part,
)
from lm_experiments.rundir.words import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (GRADIENT, STREAM, LARGEST, ENTROPY)
# Values this far apart are drawn on a logarithmic scale.
FAR = 5.0


def draw_layers(rows: Mapping[str, Mapping[str, float]], title: str, path: Path) -> None:
    """Write the picture: four statistics by block, a line for each arm's row of diagnostics."""
    with picture(path, (10.0, 7.4)) as figure:
        figure.suptitle(title, x=0.02, ha="left", color=INK)
        for place, statistic in enumerate(SHOWN, start=1):
            axes = figure.add_subplot(2, 2, place)
            _layers(axes, rows, statistic)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False, fontsize=9)
        figure.tight_layout(rect=(0, 0.06, 1, 0.97))


def _layers(axes: Axes, rows: Mapping[str, Mapping[str, float]], statistic: str) -> None:
    from matplotlib.ticker import MaxNLocator

    plain_frame(axes, "y")
    values: list[float] = []
    for order, (label, row) in enumerate(rows.items()):
        blocks = {p: v for p, v in by_part(dict(row), statistic).items() if p.isdecimal()}
        turn, color = divmod(order, len(COLORS))
        style = {"color": COLORS[color], "linestyle": DASHES[turn % len(DASHES)]}
        axes.plot([int(p) for p in blocks], list(blocks.values()), marker="o", ms=3, label=label)
        axes.lines[-1].set(**style)
        values += blocks.values()
    if values and min(values) > 0 and max(values) > FAR * min(values):
        _logarithmic(axes, "y")
    axes.set_title(wrapped(STATISTICS[statistic], 60), size=9, loc="left", color=INK)
    axes.set_xlabel("block", color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def draw_coordinates(
    checked: Mapping[str, Sequence[Sequence[tuple[int, float]]]], title: str, path: Path
) -> None:
    """Write the picture: each statistic against the width, a line for each step."""
    with picture(path, (11.0, 4.2)) as figure:
        figure.suptitle(title, x=0.02, ha="left", color=INK)
        for place, (name, steps) in enumerate(checked.items(), start=1):
            axes = figure.add_subplot(1, len(checked), place)
            plain_frame(axes, "y")
            for step, points in enumerate(steps):
                xs, ys = zip(*points, strict=True)
                shade = 0.25 + 0.75 * (step + 1) / len(steps)
                label = f"after {counted(step, 'step')}" if step else "at initialisation"
                axes.plot(xs, ys, marker="o", ms=4, color=COLORS[0], alpha=shade, label=label)
            _logarithmic(axes, "x")
            _logarithmic(axes, "y")
            axes.set_xticks(xs, [f"{x:g}" for x in xs])
            axes.set_title(name, size=9, loc="left", color=INK)
            axes.set_xlabel("width (model.d_model)", color=INK)
        figure.axes[-1].legend(frameon=False, fontsize=8)
        figure.tight_layout(rect=(0, 0, 1, 0.97))


def _logarithmic(axes: Axes, side: str) -> None:
    """Scale an axis, its ticks in plain numbers: the usual ones are formulas."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis = axes.xaxis if side == "x" else axes.yaxis
    axes.set(**{f"{side}scale": "log"})
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axis.set_minor_formatter(NullFormatter() if side == "x" else FuncFormatter(_two_digits))


def _two_digits(value: float, place: int | None) -> str:
    return f"{value:.2g}"
