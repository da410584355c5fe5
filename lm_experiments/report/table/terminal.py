"""Print a table of arms; a narrow terminal drops columns and says which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from lm_experiments.report.table.columns import Column, columns
from lm_experiments.report.table.effects import (
    HEADING,
    TITLES,
    effect_cells,
    effect_notes,
    shown_effects,
)
from lm_experiments.report.table.notes import headline, legend, notes
from lm_experiments.report.table.rows import Row, Table

WRAPPED_WIDTH = 20
GAP = 2
PLAIN_WIDTH = 10_000


def show_table(table: Table, console: Console) -> None:
    """Print the table and its notes; a narrow terminal drops columns and says which."""
    if not console.is_terminal:
        # A pipe has no width to wrap at.
        console = Console(file=console.file, width=PLAIN_WIDTH)
    chosen, dropped = _fit(columns(table), table.rows, console.width)
    view = _view()
    for column, width in zip(chosen, _widths(chosen, table.rows, console.width), strict=True):
        justify: Literal["right", "left"] = "right" if column.right else "left"
        view.add_column(column.title, justify=justify, width=width)
    for row in table.rows:
        view.add_row(*(column.text(row) for column in chosen))
    _print(console, f"{table.sweep.record.name}: {headline(table)}\n")
    _print(console, view)
    if dropped:
        _print(console, f"\nToo narrow for {', '.join(dropped)}; table.csv has every column.")
    _print(console, "\n" + "\n".join([legend(table), *notes(table)]))
    _show_effects(table, console)


def _show_effects(table: Table, console: Console) -> None:
    if not (found := effect_notes(table)):
        return
    _print(console, f"\n{HEADING}\n")
    if table.effects:
        view = _view()
        for title in TITLES:
            view.add_column(title, justify="left" if title == TITLES[0] else "right")
        for effect in shown_effects(table.effects):
            view.add_row(*effect_cells(effect))
        _print(console, view)
    _print(console, "\n" + "\n".join(found))


def _view() -> RichTable:
    return RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="")


def _print(console: Console, content: str | RichTable) -> None:
    # Text from configs and errors may hold brackets, which rich would read as its markup.
    console.print(content, markup=False, highlight=False, emoji=False)


def _fit(
    chosen: Sequence[Column], rows: Sequence[Row], width: int
) -> tuple[list[Column], list[str]]:
    widths = {column.title: _least_width(column, rows) for column in chosen}
    dropped: list[str] = []
    for column in sorted((c for c in chosen if c.rank), key=lambda c: c.rank):
        if sum(w + GAP for name, w in widths.items() if name not in dropped) <= width:
            break
        dropped.append(column.title)
    return [column for column in chosen if column.title not in dropped], dropped


def _widths(chosen: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """Each column's least width, and what the terminal has beyond that, from left to right."""
    widths = [_least_width(column, rows) for column in chosen]
    spare = width - sum(widths) - GAP * len(widths)
    for i, column in enumerate(chosen):
        wanted = max([len(column.title), *(len(column.text(row)) for row in rows)])
        widths[i] += max(0, min(wanted - widths[i], spare))
        spare = width - sum(widths) - GAP * len(widths)
    return widths


def _least_width(column: Column, rows: Sequence[Row]) -> int:
    """What a column takes with its title broken between words, and no cell but a wrapping one."""
    title = max(map(len, column.title.split()))
    cells = max(len(column.text(row)) for row in rows)
    return max(title, min(cells, WRAPPED_WIDTH) if column.wraps else cells)
