"""Draw the loss of every arm against the context length, and by position in the longest one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lm_experiments.report.pictures.figure import (
    INK,
    line_styles,
    picture,
    plain_frame,
    shortened,
)
from lm_experiments.report.statistics.elsewhere import Elsewhere
from lm_experiments.report.table.rows import Table
from lm_experiments.rundir.measures import UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_INCHES = (11.0, 5.0)
LONGEST_LABEL = 30


@dataclass(frozen=True)
class Curve:
    """An arm's loss by a number of tokens, with the sd over seeds where known."""

    arm: str
    tokens: tuple[int, ...]
    means: tuple[float, ...]
    sds: tuple[float, ...] = ()


def draw_contexts(table: Table, path: Path | None = None) -> Figure | None:
    """Draw the picture, into a file with `path`; None without two contexts that were measured."""
    found = table.elsewhere
    curves = context_curves(table)
    if found is None or not curves:
        return None
    with picture(path, SIZE_INCHES) as figure:
        left = figure.add_axes((0.065, 0.13, 0.37, 0.75))
        right = figure.add_axes((0.5, 0.13, 0.37, 0.75))
        trained = sorted(set(found.trained.values()) - {0})
        left.set_title(
            f"{table.sweep.record.name}: loss by context, mean and sd over seeds",
            loc="left",
            color=INK,
        )
        left.set_ylabel(unit_of(found), color=INK)
        left.set_xlabel("context length (tokens, dotted: trained)", color=INK)
        _panel(left, table, curves, trained)
        right.set_title("by position in an arm's longest window", loc="left", color=INK)
        right.set_ylabel(UNITS["val_loss"], color=INK)
        right.set_xlabel("position in the window, up to (tokens)", color=INK)
        _panel(right, table, position_curves(table), trained)
        figure.legend(*left.get_legend_handles_labels(), loc="center right", frameon=False)
    return figure


def unit_of(found: Elsewhere) -> str:
    """The unit of losses elsewhere."""
    return UNITS["bits_per_byte" if found.in_bits else "val_loss"]


def context_curves(table: Table) -> list[Curve]:
    """The loss of each arm by context length, of arms with two contexts or more."""
    found, curves = table.elsewhere, []
    for row in table.rows if found else ():
        assert found is not None
        cells = [(each, found.cells[row.arm][each.title].loss) for each in found.contexts]
        known = [(each.tokens(found.trained[row.arm]), loss) for each, loss in cells if loss]
        if len(known) > 1:
            tokens, losses = zip(*known, strict=True)
            sds = tuple(loss.sd or 0.0 for loss in losses)
            curves.append(Curve(row.arm, tokens, tuple(loss.mean for loss in losses), sds))
    return curves


def position_curves(table: Table) -> list[Curve]:
    """The loss of each arm by position in its longest context."""
    found, curves = table.elsewhere, []
    for row in table.rows if found else ():
        by_position = _longest_measured(found, row.arm) if found else ()
        if by_position:
            ends, means = zip(*by_position, strict=True)
            curves.append(Curve(row.arm, ends, means))
    return curves


def _longest_measured(found: Elsewhere, arm: str) -> tuple[tuple[int, float], ...]:
    cells = [found.cells[arm][each.title] for each in found.contexts]
    return next((cell.by_position for cell in reversed(cells) if cell.by_position), ())


def _panel(axes: Axes, table: Table, curves: Sequence[Curve], trained: Sequence[int]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    plain_frame(axes, "y")
    axes.set_xscale("log", base=2)
    ticks = sorted({at for curve in curves for at in curve.tokens})
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    for length in trained:
        axes.axvline(length, color=INK, lw=1.0, ls=":")
    styles = line_styles(table)
    for curve in curves:
        style = styles[curve.arm]
        label = shortened(curve.arm, LONGEST_LABEL)
        axes.plot(curve.tokens, curve.means, label=label, **{**style.options(), "marker": "o"})
        if any(curve.sds):
            low, high = (
                [mean + side * sd for mean, sd in zip(curve.means, curve.sds, strict=True)]
                for side in (-1, 1)
            )
            axes.fill_between(curve.tokens, low, high, color=style.color, alpha=0.15, lw=0)
