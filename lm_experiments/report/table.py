"""Show a table of arms on a terminal, as GitHub Markdown and as CSV, from one list of columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from lm_experiments.report.notes import headline, notes
from lm_experiments.report.rows import Row, Table
from lm_experiments.report.statistics import Summary

NOTHING = "-"
WRAPPED_WIDTH = 20
GAP = 2
PLAIN_WIDTH = 10_000
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Column:
    """A title and the text of its cells; `wraps` lets a narrow terminal break the text."""

    title: str
    text: Callable[[Row], str]
    right: bool = True
    wraps: bool = False
    shown: Callable[[Table], bool] = lambda table: True


def si(value: float | None) -> str:
    """Three significant digits with an SI prefix, such as 25.3M."""
    if value is None:
        return NOTHING
    for size, prefix in _PREFIXES:
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def _fixed(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _part(summary: Summary | None, name: str, form: str = ".4f") -> str:
    return _fixed(None if summary is None else getattr(summary, name), form)


def _difference(row: Row) -> str:
    return "(baseline)" if row.is_baseline else _part(row.difference, "mean", "+.4f")


def _several_seeds(table: Table) -> bool:
    return table.most_seeds > 1


def _several_rates(table: Table) -> bool:
    return len({row.first("learning_rate") for row in table.rows} - {None}) > 1


def _several_runs(table: Table) -> bool:
    return any(len(row.runs) > 1 for row in table.rows)


_COLUMNS = (
    Column("val loss", lambda row: _part(row.loss, "mean")),
    Column("sd", lambda row: _part(row.loss, "sd"), shown=_several_seeds),
    Column("95 % +/-", lambda row: _part(row.loss, "half_width"), shown=_several_seeds),
    Column("n", lambda row: f"{len(row.usable)} of {len(row.runs)}", shown=_several_runs),
    Column("vs baseline", _difference),
    Column("sd of diff", lambda row: _part(row.difference, "sd"), shown=_several_seeds),
    Column("bits/byte", lambda row: _fixed(row.mean("bits_per_byte"), ".4f")),
    Column("learning rate", lambda row: _rate(row.first("learning_rate")), shown=_several_rates),
    Column("parameters", lambda row: _fixed(row.first("parameters"), ",.0f")),
    Column("non-embedding", lambda row: _fixed(row.first("non_embedding"), ",.0f")),
    Column("FLOPs/token", lambda row: si(row.first("flops_per_token"))),
    Column("tokens/s", lambda row: _fixed(row.mean("tokens_per_second"), ",.0f")),
    Column("outcome", lambda row: row.outcome, right=False, wraps=True),
)
# What a narrow terminal goes without, first to go first.
_DROPPABLE = (
    "non-embedding",
    "tokens/s",
    "FLOPs/token",
    "bits/byte",
    "95 % +/-",
    "parameters",
    "learning rate",
    "sd of diff",
)


def columns(table: Table) -> list[Column]:
    """The columns this table needs: the axes or the arm's label, then the numbers."""
    axes = [_level_column(i, axis) for i, axis in enumerate(table.axes)]
    label = Column("arm", lambda row: row.arm, right=False, wraps=True)
    return [*(axes or [label]), *(column for column in _COLUMNS if column.shown(table))]


def markdown(table: Table, picture: str | None = None) -> str:
    """The whole report as GitHub Markdown, numbers aligned right, with a link to the picture."""
    chosen = columns(table)
    lines = [
        f"# {_plain(table.sweep.name)}",
        "",
        _plain(headline(table)),
        "",
        _markdown_row([column.title for column in chosen]),
        _markdown_row(["---:" if column.right else ":---" for column in chosen]),
        *(_markdown_row([column.text(row) for column in chosen]) for row in table.rows),
        "",
        _legend(),
        "",
        *(f"- {_plain(note)}" for note in notes(table)),
    ]
    if picture:
        lines += ["", f"![Validation loss of every arm]({picture})"]
    return "\n".join(lines) + "\n"


def csv_text(table: Table) -> str:
    """One record per arm at full precision, for programs; what is unknown is left empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    records = [_record(row, table.axes) for row in table.rows]
    writer.writerow(records[0])
    writer.writerows([_exact(value) for value in record.values()] for record in records)
    return out.getvalue()


def show_table(table: Table, console: Console) -> None:
    """Print the table and its notes; a narrow terminal drops columns and says which."""
    if not console.is_terminal:
        # A pipe has no width to wrap at.
        console = Console(file=console.file, width=PLAIN_WIDTH)
    chosen, dropped = _fit(columns(table), table.rows, console.width)
    view = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="")
    for column in chosen:
        justify: Literal["right", "left"] = "right" if column.right else "left"
        view.add_column(column.title, justify=justify, no_wrap=not column.wraps)
    for row in table.rows:
        view.add_row(*(column.text(row) for column in chosen))
    _print(console, f"{table.sweep.name}: {headline(table)}\n")
    _print(console, view)
    if dropped:
        _print(console, f"\nToo narrow for {', '.join(dropped)}; table.md has every column.")
    _print(console, "\n" + "\n".join([_legend(), *notes(table)]))


def _print(console: Console, content: str | RichTable) -> None:
    # Text from configs and errors may hold brackets, which rich would read as its markup.
    console.print(content, markup=False, highlight=False, emoji=False)


def _fit(
    chosen: Sequence[Column], rows: Sequence[Row], width: int
) -> tuple[list[Column], list[str]]:
    widths = {column.title: _natural_width(column, rows) for column in chosen}
    dropped: list[str] = []
    for title in (title for title in _DROPPABLE if title in widths):
        kept = [w for name, w in widths.items() if name not in dropped]
        if sum(kept) + GAP * len(kept) <= width:
            break
        dropped.append(title)
    return [column for column in chosen if column.title not in dropped], dropped


def _natural_width(column: Column, rows: Sequence[Row]) -> int:
    width = max([len(column.title), *(len(column.text(row)) for row in rows)])
    return min(width, max(WRAPPED_WIDTH, len(column.title))) if column.wraps else width


def _level_column(index: int, axis: str) -> Column:
    return Column(axis, lambda row: row.levels[index], right=False)


def _rate(value: float | None) -> str:
    return _fixed(value, ".3g")


def _legend() -> str:
    return (
        "Validation loss is in nats per token, the mean over an arm's usable runs; "
        "FLOPs/token is for training; arms are sorted by loss."
    )


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _record(row: Row, axes: Sequence[str]) -> dict[str, object]:
    return {
        "arm": row.arm,
        **dict(zip(axes, row.levels, strict=True)),
        "baseline": str(row.is_baseline).lower(),
        **_statistics("val_loss", row.loss),
        "n": len(row.usable),
        "planned": len(row.runs),
        **_statistics("difference", row.difference),
        "difference_n": row.difference.n if row.difference else None,
        "bits_per_byte": row.mean("bits_per_byte"),
        "learning_rate": row.first("learning_rate"),
        "parameters": row.first("parameters"),
        "non_embedding": row.first("non_embedding"),
        "flops_per_token": row.first("flops_per_token"),
        "tokens_per_second": row.mean("tokens_per_second"),
        "outcome": row.outcome,
    }


def _statistics(name: str, summary: Summary | None) -> dict[str, object]:
    return {
        f"{name}_mean": summary.mean if summary else None,
        f"{name}_sd": summary.sd if summary else None,
        f"{name}_half_width_95": summary.half_width if summary else None,
    }


def _exact(value: object) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)
