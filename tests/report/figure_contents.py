"""What a figure shows, read from its artists."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text


def texts(figure: Figure) -> list[Text]:
    """Every text of a figure that is not empty."""
    found = figure.findobj(lambda artist: isinstance(artist, Text) and artist.get_visible())
    return [text for text in found if isinstance(text, Text) and text.get_text().strip()]


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in texts(figure)]


def points(line: Line2D) -> list[tuple[float, float]]:
    """The points of a line in data units."""
    xs, ys = line.get_data()
    return [(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]


def marked(axes: Axes, markers: Sequence[str]) -> list[tuple[float, float]]:
    """The points drawn with one of these markers."""
    return [p for line in axes.lines if line.get_marker() in markers for p in points(line)]


def outside(figure: Figure) -> list[str]:
    """The texts that are not wholly on the canvas, where a reader would miss letters."""
    figure.canvas.draw()
    canvas = figure.bbox
    missed = []
    undrawn = [text for axes in figure.axes for text in beyond_limits(axes)]
    for text in (text for text in texts(figure) if text not in undrawn):
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= canvas.x1 and box.y1 <= canvas.y1
        if not inside:
            missed.append(text.get_text())
    return missed


def beyond_limits(axes: Axes) -> list[Text]:
    """The tick labels beyond the limits, which are never drawn."""
    found = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        placed = zip(axis.get_majorticklabels(), axis.get_majorticklocs(), strict=True)
        found += [label for label, place in placed if not low <= place <= high]
    return found


def overlapping(found: Sequence[Text]) -> list[tuple[str, str]]:
    """Neighbouring texts of a column whose lines of letters run into each other."""
    boxes = sorted(((t.get_window_extent(), t.get_text()) for t in found), key=lambda b: b[0].y0)
    pairs = pairwise(boxes)
    return [(a, b) for (box, a), (above, b) in pairs if above.y0 < box.y0 + 0.6 * box.height]
