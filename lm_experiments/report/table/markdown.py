"""`table.md`: the whole report as GitHub Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lm_experiments.report.table.column import Column
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.notes import headline, legend, notes, run_ids
from lm_experiments.report.table.rows import Table
from lm_experiments.report.table.section import Section
from lm_experiments.report.table.sections import sections


def written_columns(table: Table, titles: Sequence[str] | None = None) -> list[Column]:
    """The columns of these titles, or the usual ones but for what is measured anew by each run."""
    return [column for column in columns(table, titles=titles) if titles or not column.measured]


def markdown(
    table: Table,
    pictures: Mapping[str, str] | None = None,
    titles: Sequence[str] | None = None,
) -> str:
    """The whole report as GitHub Markdown, numbers aligned right.

    It holds nothing measured, so that sweeps of equal results have equal reports, unless `titles`
    ask for it. `pictures` maps the file name of each picture to what it shows.
    """
    chosen = written_columns(table, titles)
    lines = [
        f"# {plain_text(table.sweep.record.name)}",
        "",
        plain_text(headline(table)),
        "",
        markdown_row([column.title for column in chosen]),
        markdown_row(["---:" if column.right else ":---" for column in chosen]),
        *(markdown_row([column.text(row) for column in chosen]) for row in table.rows),
        "",
        legend(table),
        "",
        *(f"- {plain_text(note)}" for note in notes(table)),
        "",
        *(line for section in sections(table) for line in _section(section)),
        "Runs:",
        "",
        *(f"- {plain_text(line)}" for line in run_ids(table)),
    ]
    for name, shows in (pictures or {}).items():
        lines += ["", f"![{plain_text(shows)}]({name})"]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> list[str]:
    rules = [":---", *["---:"] * (len(section.titles) - 1)]
    cells = [markdown_row(line) for line in (section.titles, rules, *section.rows)]
    notes_ = [f"- {plain_text(note)}" for note in section.notes]
    return [f"## {section.heading}", "", *(cells if section.rows else []), "", *notes_, ""]


def plain_text(text: str) -> str:
    """Text on one line that Markdown prints as it is."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def markdown_row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(plain_text(cell) for cell in cells)} |"
