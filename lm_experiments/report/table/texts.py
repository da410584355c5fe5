"""Show a table of arms on a terminal, as GitHub Markdown and as CSV, from one list of columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from lm_experiments.report.statistics.contrasts import Summary
from lm_experiments.report.table.columns import Column, columns
from lm_experiments.report.table.notes import headline, legend, notes, run_ids
from lm_experiments.report.table.rows import Row, Table

WRAPPED_WIDTH = 20
GAP = 2
PLAIN_WIDTH = 10_000


def markdown(table: Table, pictures: Mapping[str, str] | None = None) -> str:
    """The whole report as GitHub Markdown, numbers aligned right.

    It holds nothing measured, so that sweeps of equal results have equal reports. `pictures`
    maps the file name of each picture to what it shows.
    """
    chosen = [column for column in columns(table) if not column.measured]
    lines = [
        f"# {_plain(table.sweep.name)}",
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
        "Runs:",
        "",
        *(f"- {_plain(line)}" for line in run_ids(table)),
    ]
    for name, shows in (pictures or {}).items():
        lines += ["", f"![{_plain(shows)}]({name})"]
    return "\n".join(lines) + "\n"


def csv_text(table: Table) -> str:
    """One record per arm at full precision, for programs; what is unknown is left empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    records = [_record(row, table) for row in table.rows]
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
    for column, width in zip(chosen, _widths(chosen, table.rows, console.width), strict=True):
        justify: Literal["right", "left"] = "right" if column.right else "left"
        view.add_column(column.title, justify=justify, width=width)
    for row in table.rows:
        view.add_row(*(column.text(row) for column in chosen))
    _print(console, f"{table.sweep.name}: {headline(table)}\n")
    _print(console, view)
    if dropped:
        _print(console, f"\nToo narrow for {', '.join(dropped)}; table.csv has every column.")
    _print(console, "\n" + "\n".join([legend(table), *notes(table)]))


def _print(console: Console, content: str | RichTable) -> None:
    # Text from configs and errors may hold brackets, which rich would read as its markup.
    console.print(content, markup=False, highlight=False, emoji=False)


def _fit(
    chosen: Sequence[Column], rows: Sequence[Row], width: int
) -> tuple[list[Column], list[str]]:
    widths = {column.title: _least_width(column, rows) for column in chosen}
    dropped: list[str] = []
    for column in sorted((c for c in chosen if c.rank), key=lambda c: c.rank):
        kept = [w for name, w in widths.items() if name not in dropped]
        if sum(kept) + GAP * len(kept) <= width:
            break
        dropped.append(column.title)
    return [column for column in chosen if column.title not in dropped], dropped


def _widths(chosen: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """Each column's least width, and what the terminal has beyond that, from left to right."""
    widths = [_least_width(column, rows) for column in chosen]
    spare = width - sum(widths) - GAP * len(widths)
    for i, column in enumerate(chosen):
        wanted = max([len(column.title), *(len(column.text(row)) for row in rows)]) - widths[i]
        given = max(0, min(wanted, spare))
        widths[i] += given
        spare -= given
    return widths


def _least_width(column: Column, rows: Sequence[Row]) -> int:
    """What a column takes with its title broken between words, and no cell but a wrapping one."""
    title = max(map(len, column.title.split()))
    cells = max(len(column.text(row)) for row in rows)
    return max(title, min(cells, WRAPPED_WIDTH) if column.wraps else cells)


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _record(row: Row, table: Table) -> dict[str, object]:
    metric = table.metric
    other = "val_loss" if metric == "bits_per_byte" else "bits_per_byte"
    return {
        "arm": row.arm,
        **dict(zip(table.axes, row.levels, strict=True)),
        "baseline": str(row.is_baseline).lower(),
        **_tuning_record(row, table),
        **_statistics(metric, row.loss),
        "n": len(row.usable),
        "planned": len(row.runs),
        **_difference_record(row),
        other: row.mean(other),
        "learning_rate": row.first("learning_rate"),
        "parameters": row.first("parameters"),
        "non_embedding": row.first("non_embedding"),
        "flops_per_token": row.first("flops_per_token"),
        "tokens_per_second": row.mean("tokens_per_second"),
        "outcome": row.outcome,
    }


def _tuning_record(row: Row, table: Table) -> dict[str, object]:
    study = table.sweep.study
    if study is None or study.tune is None:
        return {}
    common = row.common
    return {
        f"best_{study.tune.key}": row.chosen.value if row.chosen else None,
        "best_at_edge": str(bool(row.chosen.edge)).lower() if row.chosen else None,
        **_statistics(f"common_{table.metric}", common.loss if common else None),
        "common_n": len(common.usable) if common else None,
    }


def _difference_record(row: Row) -> dict[str, object]:
    contrast, comparison = row.difference, row.comparison
    return {
        "reference": comparison.reference if comparison else None,
        "difference_mean": contrast.mean if contrast else None,
        "difference_sd": contrast.sd if contrast else None,
        "difference_half_width_95": contrast.half_width if contrast else None,
        "difference_low_95": contrast.low if contrast else None,
        "difference_high_95": contrast.high if contrast else None,
        "difference_n": contrast.n if contrast else None,
        "p": contrast.p if contrast else None,
        "p_holm": contrast.adjusted_p if contrast else None,
        "p_sign_flip": contrast.sign_flip_p if contrast else None,
        "p_equivalent": contrast.equivalent_p if contrast else None,
        "verdict": comparison.verdict if comparison else None,
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
