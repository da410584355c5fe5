"""Tables, pictures, pages and data frames of a sweep, made from its run directories alone.

`write_report("runs/NAME")` writes `table.md`, `table.csv`, `table.json`, `table.tex`, `report.html`
and the pictures `curves`, `by_value`, `forest`, `ladder`, `effects` and `sensitivity` as PNG beside
the runs, for paper as PDF and SVG too; written again from the same runs, the files are the same
bytes, but for the ledger that the page shows.
`merged_report(["runs/A", "runs/B"])` makes one table of several sweeps. `load("runs/NAME")` gives
table, pictures and data frames as objects, which a notebook shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from lm_experiments.errors import InputError
from lm_experiments.report.collect import collect
from lm_experiments.report.loaded import LoadedSweep, ShownTable, load
from lm_experiments.report.look import keep_look
from lm_experiments.report.merge import merge
from lm_experiments.report.page import PAGE, page_html
from lm_experiments.report.style import USUAL, Style
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.latex import latex
from lm_experiments.report.table.markdown import markdown
from lm_experiments.report.table.rows import Table, build_table
from lm_experiments.report.table.terminal import show_table
from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.rundir.names import SWEEP

__all__ = [
    "LoadedSweep",
    "Report",
    "ShownTable",
    "Style",
    "Table",
    "build_table",
    "collect",
    "load",
    "merged_report",
    "show_report",
    "write_report",
]


# Pictures for screens, and those for paper.
SCREEN, PAPER = ".png", (".pdf", ".svg")


@dataclass(frozen=True)
class Report:
    """A table and the files it was written to."""

    table: Table
    files: tuple[Path, ...]


def write_report(
    sweep_dir: str | Path,
    baseline: str | None = None,
    allow_mixed: bool = False,
    style: Style = USUAL,
) -> Report:
    """Write the table, the pictures and the page of a sweep into its folder.

    `baseline` is an arm's label; None takes the study's, or the first declared arm. A picture is
    written only when there is something to draw. The sweep's ledger keeps that the table was shown.
    Raises `InputError` for a path without runs, a
    damaged file, an unknown baseline, or runs that do not belong in one table (drawn with a
    warning under `allow_mixed`). `style` says how the files are set.
    """
    folder = Path(sweep_dir)
    table = build_table(collect(folder), baseline, allow_mixed)
    files = _write(table, folder, style)
    keep_look(table)
    return Report(table, files)


def merged_report(
    sweep_dirs: Sequence[str | Path],
    out: str | Path | None = None,
    baseline: str | None = None,
    allow_mixed: bool = False,
    style: Style = USUAL,
) -> Report:
    """Make one table of several sweeps, see `merge.merge`, and write it to ``out`` if there is one.

    No declaration is of all its runs, so that it is exploratory. The ledgers of the sweeps keep
    that it was shown, where they can be written. Raises `InputError` as `write_report` does, and
    for an ``out`` that is a sweep's own folder.
    """
    folders = [Path(folder) for folder in sweep_dirs]
    if out is not None and (Path(out) / SWEEP).exists():
        raise InputError(f"--out {out} is a sweep's folder, with a table of its own; type another.")
    sweep = merge([collect(folder) for folder in folders], Path(out or "."))
    table = build_table(sweep, baseline, allow_mixed)
    files = () if out is None else _write(table, Path(out), style)
    keep_look(table)
    return Report(table, files)


def show_report(
    report: Report, console: Console | None = None, titles: Sequence[str] | None = None
) -> None:
    """Print the table, its notes and the names of the files written."""
    console = console or Console()
    show_table(report.table, console, titles)
    names = "\n".join(f"Wrote {path}" for path in report.files)
    names = names or "Nothing was written; type --out FOLDER to keep this table."
    console.print("\n" + names, markup=False, highlight=False, soft_wrap=True)


def _write(table: Table, folder: Path, style: Style) -> tuple[Path, ...]:
    """Write a table, its pictures and its page into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = _draw(table, folder, style)
    shown = {name: text for name, text in pictures.items() if name.endswith(SCREEN)}
    texts = {
        folder / "table.md": markdown(table, shown),
        folder / "table.csv": csv_text(table),
        folder / "table.json": json_text(table),
        folder / "table.tex": latex(table, style),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    write_atomically(folder / PAGE, page_html(table))
    return (*texts, *(folder / name for name in pictures), folder / PAGE)


def _draw(table: Table, folder: Path, style: Style) -> dict[str, str]:
    """Draw what there is to draw; the file names of the pictures with what they show."""
    # Imported here because these load only when something is drawn.
    from lm_experiments.report.pictures.by_value import draw_by_value
    from lm_experiments.report.pictures.contexts import draw_contexts
    from lm_experiments.report.pictures.curves import draw_curves
    from lm_experiments.report.pictures.effects import draw_effects
    from lm_experiments.report.pictures.forest import draw_forest
    from lm_experiments.report.pictures.ladder import draw_ladder
    from lm_experiments.report.pictures.sensitivity import draw_sensitivity

    drawn = {}
    for draw, name, shows in (
        (partial(draw_curves, against=style.against), "curves", "Validation loss of every arm"),
        (draw_by_value, "by_value", "Loss by the swept number"),
        (draw_forest, "forest", "Differences with 95 % intervals"),
        (draw_ladder, "ladder", "Differences against training compute, with 95 % intervals"),
        (draw_effects, "effects", "Main effects and interactions with 95 % intervals"),
        (draw_sensitivity, "sensitivity", "Validation loss by the tuned key"),
        (draw_contexts, "contexts", "Loss by context length, and by position"),
    ):
        for suffix in (SCREEN, *PAPER):
            path = folder / f"{name}{suffix}"
            if (suffix == SCREEN or style.paper) and draw(table, path):
                drawn[path.name] = shows
            else:
                # A picture of runs that have since gone would contradict the table beside it.
                path.unlink(missing_ok=True)
    return drawn
