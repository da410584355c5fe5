"""Tables and curves of a sweep, made from its run directories alone.

`write_report("runs/NAME")` writes `table.md`, `table.csv` and `curves.png` beside the runs;
written again from the same runs, the files are the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lm_experiments.report.collect import ReportError, Run, Sweep, collect, read_metrics
from lm_experiments.report.rows import Row, Table, build_table
from lm_experiments.report.table import csv_text, markdown, show_table

__all__ = [
    "Report",
    "ReportError",
    "Row",
    "Run",
    "Sweep",
    "Table",
    "build_table",
    "collect",
    "read_metrics",
    "show_report",
    "write_report",
]


@dataclass(frozen=True)
class Report:
    """A table and the files it was written to."""

    table: Table
    files: tuple[Path, ...]


def write_report(sweep_dir: str | Path, baseline: str | None = None) -> Report:
    """Write the table and the curves of a sweep into its folder.

    `baseline` is an arm's label; None takes the first declared arm. `curves.png` is written only
    when a run has validation rows. Raises `ReportError` for a path without runs, a damaged file
    or an unknown baseline.
    """
    # Imported here because matplotlib is slow to load.
    from lm_experiments.report.curves import draw_curves

    table = build_table(collect(sweep_dir), baseline)
    folder = Path(sweep_dir)
    picture = folder / "curves.png"
    drawn = draw_curves(table, picture)
    if not drawn:
        # A picture of runs that have since gone would contradict the table beside it.
        picture.unlink(missing_ok=True)
    texts = {
        folder / "table.md": markdown(table, picture.name if drawn else None),
        folder / "table.csv": csv_text(table),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    return Report(table, (*texts, picture) if drawn else tuple(texts))


def show_report(report: Report, console: Console | None = None) -> None:
    """Print the table, its notes and the names of the files written."""
    console = console or Console()
    show_table(report.table, console)
    names = "\n".join(f"Wrote {path}" for path in report.files)
    console.print("\n" + names, markup=False, highlight=False, soft_wrap=True)
