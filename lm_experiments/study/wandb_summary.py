"""The run that sums a sweep up in W&B: its table, verdicts, pictures and ledger.

It is brought up to date where the sweep grows, since its id lies in the sweep's folder.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lm_experiments.report import Report, Table
from lm_experiments.report.collect import Sweep
from lm_experiments.report.page import PAGE
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.rundir.atomic import jsonable
from lm_experiments.rundir.names import LEDGER, SWEEP
from lm_experiments.training.wandb.client import (
    close_service,
    finish,
    first_line,
    keep,
    quiet,
    say,
    start_run,
)
from lm_experiments.training.wandb.description import NAME_LIMIT, group_of, tag
from lm_experiments.training.wandb.offline import SUMMARY_HOME, UNSENT_FILE, read_id
from lm_experiments.training.wandb.settings import WandbSettings

if TYPE_CHECKING:
    from wandb import Run

# Its job type, and a tag of it.
SUMMARY = "summary"


def summarize(folder: Path, report: Report, config: WandbSettings) -> None:
    """Bring the run that sums up a sweep's folder up to date, or start it.

    Whatever W&B does, a failure is one line, and nothing is raised.
    """
    if config.mode == "disabled":
        return
    home = folder / SUMMARY_HOME
    run, mode, problem = start_run(config, home, _described(report.table, config))
    if problem:
        say(problem, mode, "the sweep's summary")
    if run is None:
        return
    try:
        with quiet():
            # Asked of an offline run it is a warning.
            page = run.url if mode == "online" else None
            _tell(run, folder, report, page)
        finish(run, 0)
        (home / UNSENT_FILE).unlink(missing_ok=True)
        if page:
            group = quote(group_of(config, report.table.sweep.record.name), safe="")
            print(f"W&B: {page.rpartition('/runs/')[0]}/groups/{group}\nW&B: {page}")
    except Exception as error:
        if mode == "online":
            (home / UNSENT_FILE).touch()
        line = f"W&B: the sweep's summary was not sent ({type(error).__name__}: "
        print(f"{line}{first_line(error)}).", file=sys.stderr)
        close_service(dead=True)
    else:
        close_service()


def _described(table: Table, config: WandbSettings) -> dict[str, Any]:
    record = table.sweep.record
    name = " ".join(filter(None, (config.run_name, record.name, SUMMARY)))
    declared = dataclasses.asdict(record.study) if record.study else {}
    return {
        "group": group_of(config, record.name),
        "name": name[:NAME_LIMIT],
        "job_type": SUMMARY,
        "notes": config.notes,
        "tags": [*config.tags, tag("study", record.name), SUMMARY],
        "config": {"study": jsonable(declared), "command": record.command, "axes": record.axes},
    }


def _tell(run: Run, folder: Path, report: Report, page: str | None) -> None:
    import wandb

    table = report.table
    pictures = [path for path in report.files if path.suffix == ".png"]
    run.log(
        {
            "table": _table(*_rows(table)),
            "runs": _table(*_runs(table.sweep, page)),
            **{path.stem: wandb.Image(str(path)) for path in pictures},
        }
    )
    verdicts = {row.arm: row.comparison.verdict for row in table.rows if row.comparison}
    run.summary.update({"baseline": table.baseline, "verdicts": verdicts})
    beside = [folder / name for name in (SWEEP, LEDGER, PAGE)]
    keep(run, (*report.files, *(path for path in beside if path.is_file())))


def _table(titles: Iterable[str], rows: Iterable[list[Any]]) -> Any:
    import wandb

    return wandb.Table(columns=[*titles], data=list(rows), allow_mixed_types=True)


def _rows(table: Table) -> tuple[list[str], list[list[Any]]]:
    """Return the table as `table.csv` has it, numbers as numbers, nothing as None."""
    titles, *rows = csv.reader(io.StringIO(csv_text(table)))
    return titles, [[_value(cell) for cell in row] for row in rows]


def _value(cell: str) -> float | str | None:
    try:
        return float(cell)
    except ValueError:
        return cell or None


def _runs(sweep: Sweep, url: str | None) -> tuple[list[str], list[list[Any]]]:
    """Return every run with its loss, and its page beside the summary's ``url``, else its id."""
    titles = ["arm", "seed", "role", "outcome", "loss", "run"]
    rows = []
    for run in (*sweep.runs, *sweep.trials):
        known = read_id(run.directory)[0]
        page = f"{url.rpartition('/')[0]}/{known}" if url and known else known
        loss = run.value("val_loss")
        rows.append([run.arm, run.seed, run.role, run.outcome, loss, page])
    return titles, rows
