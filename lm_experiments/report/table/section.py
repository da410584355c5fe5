"""A table of its own below that of the arms, which every format writes alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A heading, rows of cells under titles, and notes; there may be no rows.

    `figure` is the name of its figure in the page. `printed` puts it on paper.
    """

    heading: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    figure: str = ""
    printed: bool = True
