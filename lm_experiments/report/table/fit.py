"""A table as wide as a terminal: columns are dropped and names wrapped, but no number is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lm_experiments.rundir.words import shortened

GAP = 2
# How far a cell that breaks may be narrowed: as long as columns can be dropped, and after that.
BROKEN_WIDTH, NARROW_WIDTH = 20, 12
# Columns of this rank and beyond are dropped only where narrow cells are not enough.
IMPORTANT = 20
# How a narrow terminal breaks a cell; a number is never broken, since it has no space.
NEVER, AT_SPACES, ANYWHERE, SHORTENED = "never", "at spaces", "anywhere", "shortened"


@dataclass(frozen=True)
class Cells:
    """A column of a printed table.

    Attributes:
        texts: its cells.
        right: whether they are aligned at the right.
        breaks: never; at spaces or anywhere, to go on in the next line; or shortened, a name.
        rank: the order in which one goes without it, 0 for never.
        styles: the style of each cell, empty for none.
    """

    title: str
    texts: Sequence[str]
    right: bool = False
    breaks: str = NEVER
    rank: int = 0
    styles: Sequence[str] = ()

    def least(self, narrow: bool) -> int:
        """Return the width below which something would be cut; a title breaks at spaces."""
        title, cells = _longest_word([self.title]), max(map(len, self.texts), default=0)
        if self.breaks == NEVER:
            return max(title, cells)
        if not narrow:
            return max(title, min(cells, BROKEN_WIDTH))
        if self.breaks == AT_SPACES:
            return max(title, _longest_word(self.texts))
        return min(max(title, cells), NARROW_WIDTH)

    def fitted(self, width: int) -> list[Text]:
        """Return the cells for a width, which breaks those that are longer."""
        texts = shortened(self.texts, width) if self.breaks == SHORTENED else self.texts
        styles = self.styles or [""] * len(texts)
        return [Text(text, style) for text, style in zip(texts, styles, strict=True)]


@dataclass(frozen=True)
class Fitted:
    """What of some columns fits: the table, the titles left out, and whether it does fit."""

    table: Table
    dropped: tuple[str, ...]
    fits: bool


def fitted(columns: Sequence[Cells], width: int) -> Fitted:
    """Return a table that is at most ``width`` characters wide, where that is possible."""
    narrow, chosen = False, _without(columns, width, False)
    if _total(chosen, narrow) > width:
        narrow, chosen = True, _without(columns, width, True)
    widths = _widths(chosen, width, narrow)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="")
    for column, own in zip(chosen, widths, strict=True):
        justify: Literal["right", "left"] = "right" if column.right else "left"
        table.add_column(Text(column.title), justify=justify, width=own, overflow="fold")
    cells = [column.fitted(own) for column, own in zip(chosen, widths, strict=True)]
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    kept = {id(column) for column in chosen}
    dropped = tuple(column.title for column in _by_rank(columns) if id(column) not in kept)
    return Fitted(table, dropped, _total(chosen, narrow) <= width)


def _longest_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def _by_rank(columns: Sequence[Cells]) -> list[Cells]:
    return sorted((column for column in columns if column.rank), key=lambda column: column.rank)


def _without(columns: Sequence[Cells], width: int, narrow: bool) -> list[Cells]:
    """Drop columns by rank until the others fit, the important ones only if cells are narrow."""
    kept = list(columns)
    for column in _by_rank(columns):
        important = column.rank >= IMPORTANT and not narrow
        if _total(kept, narrow) <= width or important:
            break
        kept.remove(column)
    return kept


def _total(columns: Sequence[Cells], narrow: bool) -> int:
    return sum(column.least(narrow) + GAP for column in columns)


def _widths(columns: Sequence[Cells], width: int, narrow: bool) -> list[int]:
    """Return each column's least width, and what the terminal has beyond that, from the left."""
    widths = [column.least(narrow) for column in columns]
    spare = width - _total(columns, narrow)
    for i, column in enumerate(columns):
        wanted = max([len(column.title), *map(len, column.texts)])
        more = max(0, min(wanted - widths[i], spare))
        widths[i] += more
        spare -= more
    return widths
