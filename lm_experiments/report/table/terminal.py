"""Print a table of arms; a narrow terminal drops columns and says which."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as RichTable

from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.fit import ANYWHERE, AT_SPACES, Cells, Fitted, fitted
from lm_experiments.report.table.notes import headline, legend, notes
from lm_experiments.report.table.rows import Table
from lm_experiments.report.table.section import Section
from lm_experiments.report.table.sections import sections

PLAIN_WIDTH = 10_000


def show_table(table: Table, console: Console, titles: Sequence[str] | None = None) -> None:
    """Print the table and its notes; a narrow terminal drops columns and says which."""
    if not console.is_terminal:
        # A pipe has no width to wrap at.
        console = Console(file=console.file, width=PLAIN_WIDTH)
    view = _fitted(table, console.width, True, titles)
    if not view.fits:
        view = _fitted(table, console.width, False, titles)
    _print(console, f"{table.sweep.record.name}: {headline(table)}\n")
    _print(console, view.table)
    if view.dropped:
        _print(console, f"\nToo narrow for {', '.join(view.dropped)}; table.csv has every column.")
    _print(console, "\n" + "\n".join([legend(table), *notes(table)]))
    for section in sections(table):
        _show_section(section, console)


def _fitted(table: Table, width: int, by_axis: bool, titles: Sequence[str] | None = None) -> Fitted:
    cells = [
        Cells(c.title, [c.text(row) for row in table.rows], c.right, c.breaks, c.rank)
        for c in columns(table, by_axis, titles)
    ]
    return fitted(cells, width)


def _show_section(section: Section, console: Console) -> None:
    _print(console, f"\n{section.heading}\n")
    if section.rows:
        label, *numbers = zip(section.titles, zip(*section.rows, strict=True), strict=True)
        cells = [
            Cells(*label, breaks=ANYWHERE),
            *(Cells(*each, right=True, breaks=AT_SPACES) for each in numbers),
        ]
        _print(console, fitted(cells, console.width).table)
    _print(console, "\n" + "\n".join(section.notes))


def _print(console: Console, content: str | RichTable) -> None:
    # Text from configs and errors may hold brackets, which rich would read as its markup.
    console.print(content, markup=False, highlight=False, emoji=False)
