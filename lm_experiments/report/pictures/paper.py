"""Pictures for papers: the same figures, at the width of a page, as PDF and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The text width of a page of most venues.
PAGE_INCHES = 6.9
# What of a file would differ between two moments, or two versions of matplotlib.
_UNDATED: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".svg": {"Date": None, "Creator": None},
}


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its file's name; for paper it is set `PAGE_INCHES` wide."""
    if path.suffix != ".png":
        shrink(figure, PAGE_INCHES / figure.get_figwidth())
    figure.savefig(path, metadata=_UNDATED[path.suffix])


def shrink(figure: Figure, factor: float) -> None:
    """Scale a figure with its letters, lines and distances, so that its layout stays as it is."""
    import numpy as np
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation, Text

    # Ticks are made when they are first drawn, in the sizes of that moment.
    figure.draw_without_rendering()
    figure.set_size_inches(figure.get_figwidth() * factor, figure.get_figheight() * factor)
    for artist in set(figure.findobj()):
        if isinstance(artist, Text):
            artist.set_fontsize(float(artist.get_fontsize()) * factor)
        if isinstance(artist, Annotation):
            x, y = artist.xyann
            artist.xyann = (x * factor, y * factor)
        if isinstance(artist, Line2D):
            artist.set_linewidth(artist.get_linewidth() * factor)
            artist.set_markersize(artist.get_markersize() * factor)
        if isinstance(artist, Collection):
            artist.set_linewidth([float(w) * factor for w in np.atleast_1d(artist.get_linewidth())])
