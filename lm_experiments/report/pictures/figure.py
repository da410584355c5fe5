"""What all pictures share: the figure, saved to the same bytes, and the look of each arm's line."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lm_experiments.report.pictures.paper import save
from lm_experiments.report.table.rows import Table, arm_levels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

INK = "#333333"
FAINT = "#d5d5d5"
# Okabe and Ito's palette for colour-blind readers, without its yellow, which is faint on white.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
DASHES = ("-", (0, (4, 1.6)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("", "o", "^", "s", "D")

# The channels that tell levels apart, for the last axis, the one before it, the one before that.
_CHANNELS: tuple[tuple[str, Sequence[Any]], ...] = (
    ("color", COLORS),
    ("dashes", DASHES),
    ("marker", MARKERS),
)


@dataclass(frozen=True)
class LineStyle:
    """The look of one line, in matplotlib's terms."""

    color: str = INK
    dashes: str | tuple[float, tuple[float, ...]] = "-"
    marker: str = ""

    def options(self) -> dict[str, Any]:
        """The keyword arguments of a matplotlib line."""
        return {
            "color": self.color,
            "linestyle": self.dashes,
            "marker": self.marker,
            "markerfacecolor": "white",
            "markersize": 5,
            "linewidth": 1.6,
        }


def _axis_levels(table: Table) -> dict[str, list[str]]:
    """The levels of each axis in declared order; empty when there are too many to draw apart."""
    by_arm = arm_levels(table.sweep)
    if not by_arm or len(table.axes) > len(_CHANNELS):
        return {}
    levels = {
        axis: list(dict.fromkeys(given[i] for given in by_arm.values()))
        for i, axis in enumerate(table.axes)
    }
    channels = zip(reversed(levels.values()), _CHANNELS, strict=False)
    return levels if all(len(names) <= len(looks) for names, (_, looks) in channels) else {}


def line_styles(table: Table) -> dict[str, LineStyle]:
    """A style for each arm: by its levels, or else a cycle through colours, then dashes."""
    levels = _axis_levels(table)
    styles = {}
    for i, arm in enumerate(table.sweep.arms):
        turn, color = divmod(i, len(COLORS))
        styles[arm] = LineStyle(COLORS[color], DASHES[turn % len(DASHES)])
    for arm, given in arm_levels(table.sweep).items() if levels else ():
        pairs = zip(reversed(levels.values()), reversed(given), _CHANNELS, strict=False)
        looks = {channel: looks[names.index(at)] for names, at, (channel, looks) in pairs}
        styles[arm] = LineStyle(**looks)
    return styles


def level_key(table: Table) -> list[Line2D]:
    """Legend handles that say which look stands for which level; empty without axes."""
    from matplotlib.lines import Line2D

    handles = []
    channels = zip(reversed(_axis_levels(table).items()), _CHANNELS, strict=False)
    for (axis, names), (channel, looks) in reversed(list(channels)):
        for name, look in zip(names, looks, strict=False) if len(names) > 1 else ():
            looked: dict[str, Any] = {channel: look}
            options = LineStyle(**looked).options()
            handles.append(Line2D([], [], label=f"{axis} {name}", **options))
    return handles


def nearest(distances: Sequence[float], gap: float) -> float:
    """The largest of these before one that lies `gap` times further out, above their median.

    What a panel must hold, so that a few far values do not flatten all others.
    """
    ordered = sorted(distances)
    for i in range(len(ordered) // 2, len(ordered) - 1):
        if ordered[i] > 0 and ordered[i + 1] > gap * ordered[i]:
            return ordered[i]
    return ordered[-1]


@contextmanager
def picture(path: Path | None, size: tuple[float, float]) -> Iterator[Figure]:
    """A figure of this size in inches, which a notebook shows.

    It is written to `path` when the block ends, see `paper.save`; None writes no file.
    """
    # Imported here because matplotlib is slow to load; no pyplot, so no global state is touched.
    from lm_experiments.report.pictures.picture import Picture, styled

    with styled():
        figure = Picture(figsize=size)
        yield figure
        if path is not None:
            save(figure, path)


def wrapped(text: str, longest: int) -> str:
    """The text on as many lines as it takes, none longer than that, and nothing left out."""
    return "\n".join(textwrap.wrap(text, longest, break_on_hyphens=False)) or text


def shortened(text: str, longest: int) -> str:
    """The text, cut and marked with dots when it is longer."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def short_numbers(values: Sequence[float], most: int) -> list[str]:
    """The values in three digits, or as many as tell them apart; "" for some if many are too long.

    All together have at most `most` characters.
    """
    digits = next(n for n in range(3, 18) if len({f"{v:.{n}g}" for v in values}) == len({*values}))
    texts = [f"{value:.{digits}g}" for value in values]
    step = max(1, math.ceil(sum(map(len, texts)) / most))
    return [text if at % step == 0 else "" for at, text in enumerate(texts)]


def plain_frame(axes: Axes, grid: Literal["x", "y"]) -> None:
    """Two spines, light grid lines along "x" or "y", and no black but the ink's."""
    axes.grid(axis=grid, color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
