"""A panel of rows with their 95 % intervals against zero, numbers and words beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lm_experiments.report.pictures.figure import INK, nearest, picture, plain_frame, shortened
from lm_experiments.report.table.columns import bounds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROW_HEIGHT, TOP, BOTTOM = 10.0, 0.36, 0.62, 0.72
CHARACTER_WIDTH = 0.083
WORD_WIDTH = 0.073
LINE_WIDTH, BAND_WIDTH = 1.8, 7.0
FAR = 8.0
LONGEST_LABEL = 44
TITLE_SIZE, LONGEST_TITLE = 12.0, 90  # A longer title, of a sweep with a long name, is set smaller.
MOST_ROWS = 60
NEUTRAL = "#666666"


class Interval(Protocol):
    """An estimate and the ends of its interval, None without one."""

    @property
    def mean(self) -> float:
        """The estimate."""

    @property
    def low(self) -> float | None:
        """The lower end."""

    @property
    def high(self) -> float | None:
        """The upper end."""


@dataclass(frozen=True)
class Range:
    """Two ends, as an interval around their middle."""

    low: float
    high: float

    @property
    def mean(self) -> float:
        """The middle."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Bar:
    """A row of the panel: `estimate` None keeps its place, with its word only.

    `wide` are the ends of a second interval, drawn as a broad band behind the first, and `hollow`
    those of a range that was published, drawn as an empty bar.
    """

    label: str
    estimate: Interval | None
    word: str
    color: str | None = None
    mark: str = "o"
    filled: bool = True
    wide: tuple[float, float] | None = None
    hollow: tuple[float, float] | None = None

    @property
    def numbers(self) -> str:
        """The estimate with its interval."""
        found = self.estimate
        if found is None:
            return ""
        if found.low is None or found.high is None:
            return f"{found.mean:+.4f}"
        return f"{found.mean:+.4f} {bounds_text(found.low, found.high)}"


@contextmanager
def interval_panel(
    path: Path | None, title: str, x_label: str, bars: Sequence[Bar], margin: float | None = None
) -> Iterator[tuple[Figure, Axes]]:
    """A `picture` of the first `MOST_ROWS` bars, and its panel.

    The limits hold zero, the margin and all intervals but those far out.
    """
    shown = bars[:MOST_ROWS]
    height = TOP + BOTTOM + ROW_HEIGHT * len(shown)
    labels = [shortened(bar.label, LONGEST_LABEL) for bar in shown]
    left = (max(map(len, labels)) * CHARACTER_WIDTH + 0.25) / WIDTH
    numbers = max(len(bar.numbers) for bar in shown) * WORD_WIDTH
    right = (numbers + max(len(bar.word) for bar in shown) * WORD_WIDTH + 0.4) / WIDTH
    with picture(path, (WIDTH, height)) as figure:
        panel = (left, BOTTOM / height, 1 - left - right, 1 - (TOP + BOTTOM) / height)
        axes = figure.add_axes(panel)
        _frame(axes, labels, x_label)
        size = TITLE_SIZE * min(1.0, LONGEST_TITLE / len(title))
        figure.text(0.1 / WIDTH, 1 - 0.3 / height, title, size=size, color=INK, va="center")
        ranges = [Range(*bar.hollow) for bar in bars if bar.hollow]
        estimates = [bar.estimate for bar in bars if bar.estimate]
        axes.set_xlim(*limits([*estimates, *ranges], margin))
        for place, bar in enumerate(shown):
            _row(axes, place, bar)
            _words(axes, place, bar, 72 * numbers)
        yield figure, axes


def shown_of(count: int) -> str:
    """What a title says where not all of the rows fit, nothing where they do."""
    return f" (the first {MOST_ROWS} of {count})" if count > MOST_ROWS else ""


def explain(axes: Axes, meanings: Sequence[str]) -> None:
    """Say below the panel what its further signs mean."""
    axes.annotate(
        "; ".join(meanings),
        (0.0, 0.0),
        xycoords="axes fraction",
        xytext=(0, -40),
        textcoords="offset points",
        size=8,
        color=NEUTRAL,
    )


def limits(estimates: Sequence[Interval], margin: float | None) -> tuple[float, float]:
    """The x limits that hold zero, the margin and all intervals but those far out."""
    ends = [
        (e.mean if e.low is None else e.low, e.mean if e.high is None else e.high)
        for e in estimates
    ]
    reach = [max(abs(low), abs(high)) for low, high in ends]
    furthest = nearest([max(far, margin or 0.0) for far in reach], FAR)
    near = [end for end, far in zip(ends, reach, strict=True) if far <= furthest]
    edges = [0.0, *(edge for pair in near for edge in pair), *((-margin, margin) if margin else ())]
    low, high = min(edges), max(edges)
    room = 0.06 * (high - low) or 0.01
    return low - room, high + room


def _frame(axes: Axes, labels: Sequence[str], x_label: str) -> None:
    plain_frame(axes, "x")
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(x_label, color=INK)
    axes.locator_params(axis="x", nbins=7)
    axes.axvline(0.0, color=INK, linewidth=0.9, zorder=2)


def _row(axes: Axes, place: int, bar: Bar) -> None:
    color, found = bar.color or NEUTRAL, bar.estimate
    if bar.hollow is not None:
        _hollow(axes, place, bar.hollow)
    if found is None:
        return
    low, high = axes.get_xlim()
    if not low <= found.mean <= high:
        side, mark = (low, "<") if found.mean < low else (high, ">")
        axes.plot([side], [place], mark, color=color, markersize=7, clip_on=False, zorder=4)
        return
    if found.low is not None and found.high is not None:
        ends = [found.low, found.high]
        axes.plot(ends, [place, place], color=color, linewidth=LINE_WIDTH, zorder=3)
    if bar.wide is not None:
        axes.plot(
            bar.wide,
            [place, place],
            color=color,
            linewidth=BAND_WIDTH,
            alpha=0.3,
            solid_capstyle="butt",
            zorder=2.5,
        )
    face = color if bar.filled else "white"
    axes.plot([found.mean], [place], bar.mark, color=color, markerfacecolor=face, ms=6.5, zorder=4)


def _hollow(axes: Axes, place: int, ends: tuple[float, float]) -> None:
    """An empty bar; of a single figure its two ends are one line."""
    low, high = ends
    xs, ys = [low, high, high, low, low], [place + dy for dy in (-0.3, -0.3, 0.3, 0.3, -0.3)]
    axes.plot(xs, ys, color=INK, linewidth=0.9, zorder=2.8)


def _words(axes: Axes, place: int, bar: Bar, indent: float) -> None:
    """The numbers and the word, right of the panel in two columns."""
    for text, shift in ((bar.numbers, 10.0), (bar.word, 14.0 + indent)):
        axes.annotate(
            text,
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(shift, 0),
            textcoords="offset points",
            va="center",
            size=9,
            color=bar.color or INK,
        )
