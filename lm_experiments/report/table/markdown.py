"""`table.md`: the whole report as GitHub Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.effects import (
    HEADING,
    TITLES,
    effect_cells,
    effect_notes,
    shown_effects,
)
from lm_experiments.report.table.notes import headline, legend, notes, run_ids
from lm_experiments.report.table.rows import Table


def markdown(table: Table, pictures: Mapping[str, str] | None = None) -> str:
    """The whole report as GitHub Markdown, numbers aligned right.

    It holds nothing measured, so that sweeps of equal results have equal reports. `pictures`
    maps the file name of each picture to what it shows.
    """
    chosen = [column for column in columns(table) if not column.measured]
    lines = [
        f"# {_plain(table.sweep.record.name)}",
        "",
        _plain(headline(table)),
        "",
        _markdown_row([column.title for column in chosen]),
        _markdown_row(["---:" if column.right else ":---" for column in chosen]),
        *(_markdown_row([column.text(row) for column in chosen]) for row in table.rows),
        "",
        legend(table),
        "",
        *(f"- {_plain(note)}" for note in notes(table)),
        "",
        *_effects(table),
        "Runs:",
        "",
        *(f"- {_plain(line)}" for line in run_ids(table)),
    ]
    for name, shows in (pictures or {}).items():
        lines += ["", f"![{_plain(shows)}]({name})"]
    return "\n".join(lines) + "\n"


def _effects(table: Table) -> list[str]:
    found = effect_notes(table)
    rows = shown_effects(table.effects) if table.effects else ()
    rules = [":---", *["---:"] * (len(TITLES) - 1)]
    cells = [_markdown_row(line) for line in (TITLES, rules, *map(effect_cells, rows))]
    section = [*(cells if rows else []), "", *(f"- {_plain(note)}" for note in found), ""]
    return [f"## {HEADING}", "", *section] if found else []


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"
