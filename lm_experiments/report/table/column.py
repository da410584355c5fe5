"""One column of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lm_experiments.report.table.fit import NEVER
from lm_experiments.report.table.rows import Row


@dataclass(frozen=True)
class Column:
    """A title and the text of its cells.

    `breaks` says how a narrow terminal breaks the text; `rank` is the order in which one goes
    without the column, of equal ranks the left one first, and 0 is never; `printed` puts it on
    paper; `measured` says that training the same runs again gives other values.
    """

    title: str
    text: Callable[[Row], str]
    right: bool = True
    breaks: str = NEVER
    rank: int = 0
    printed: bool = True
    measured: bool = False
    shown: bool = True
