"""What all pictures share: a figure under matplotlib's own defaults, saved to the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lm_experiments.report.pictures.line_styles import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 160


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
def picture(path: Path, size: tuple[float, float]) -> Iterator[Figure]:
    """A figure of this size in inches, written to `path` as PNG when the block ends."""
    # Imported here because matplotlib is slow to load; no pyplot, so no global state is touched.
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # A dollar sign in an arm's label is a dollar sign.
        matplotlib.rcParams["text.parse_math"] = False
        figure = Figure(figsize=size, dpi=DPI)
        yield figure
        figure.savefig(path, metadata={"Software": None})


def shortened(text: str, longest: int) -> str:
    """The text, cut and marked with dots when it is longer."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def plain_frame(axes: Axes, grid: Literal["x", "y"]) -> None:
    """Two spines, light grid lines along "x" or "y", and no black but the ink's."""
    axes.grid(axis=grid, color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
