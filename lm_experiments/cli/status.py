"""Show where a sweep stands: a table in a terminal, plain lines elsewhere, or watched."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lm_experiments.cli.arguments import answered, script_parser
from lm_experiments.errors import InputError
from lm_experiments.report.progress import STATES, RunStatus, SweepStatus, summary, sweep_status
from lm_experiments.report.table.fit import IMPORTANT, SHORTENED, Cells, Fitted, fitted
from lm_experiments.rundir.results import DONE, FAILED, INTERRUPTED, OK, RUNNING, WAITING
from lm_experiments.rundir.words import aligned, duration

_STYLES = {DONE: "green", RUNNING: "cyan", FAILED: "bold red", INTERRUPTED: "yellow"}

USAGE = "%(prog)s runs/NAME [--watch SECONDS]"
DESCRIPTION = """\
Show where a sweep stands: which runs are done, running, failed or waiting, how far each is, about
how long the rest takes, why runs failed, and the command that continues the sweep. On a terminal
this is a table; elsewhere each run is one line. Nothing is changed, and a sweep that is going on
is not disturbed.

A run is running while a process has its lock; without a process and without a result it was
interrupted. The time left is learned from the runs that have ended; an arm without one takes what
the plan expected, as far as that was right of the others."""
EXAMPLES = """\
examples:
  python scripts/status.py runs/grid
  python scripts/status.py runs/grid --watch 5
  python scripts/status.py runs/grid | grep failed
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 for a folder that is no sweep's."""
    parser = script_parser(USAGE, DESCRIPTION, EXAMPLES)
    parser.add_argument("sweep", metavar="runs/NAME", type=Path, help="the folder of a sweep")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=float,
        help="show it again every so many seconds, until no run is left; Ctrl-C ends it",
    )
    options = parser.parse_args(arguments)
    return answered(lambda: _show_or_watch(options.sweep, options.watch))


def _show_or_watch(folder: Path, seconds: float | None) -> None:
    if seconds is None:
        show(sweep_status(folder), Console())
        return
    if not 0 < seconds < float("inf"):
        raise InputError(f"--watch {seconds:g} must be a number of seconds above 0, such as 5.")
    try:
        watch(folder, seconds, Console())
    except KeyboardInterrupt:
        print()


def show(status: SweepStatus, console: Console) -> None:
    """Print the sweep: a table on a terminal, else plain lines, which are not wrapped."""
    lines = _closing_lines(status)
    if not console.is_terminal:
        table = aligned([_cells(run) for run in status.runs])
        console.file.write("\n".join([*table, *lines, ""]))
        return
    view = _fitted(status.runs, console.width)
    console.print(view.table)
    console.print(Text("\n".join([*_too_narrow(view), *lines])), soft_wrap=True)


def watch(folder: Path, seconds: float, console: Console) -> None:
    """Show the sweep every so many seconds, until no run is left.

    On a terminal the table is updated in place, runs that need attention first; elsewhere it is a
    line each time.
    """
    with (
        Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live
    ):
        while True:
            status = sweep_status(folder)
            if live is not None:
                live.update(_screen(status, console), refresh=True)
            else:
                print(f"{status.folder.name}: {summary(status)}", file=console.file, flush=True)
            if not status.remaining:
                return
            time.sleep(seconds)


def _screen(status: SweepStatus, console: Console) -> Group:
    closing = Text("\n".join(_closing_lines(status)))
    room = max(3, console.height - len(closing.wrap(console, console.width)) - 4)
    runs = sorted(status.runs, key=lambda run: STATES.index(run.state))
    more = f"... and {len(runs) - room} more" if len(runs) > room else ""
    view = _fitted(runs[:room], console.width)
    return Group(view.table, Text(more, style="dim"), closing)


def _closing_lines(status: SweepStatus) -> list[str]:
    lines = [f"{status.folder.name}: {summary(status)}."]
    measured = {run.val_tokens for run in status.runs if run.val_loss is not None}
    if len(measured - {None}) > 1:
        part = min(tokens for tokens in measured if tokens)
        lines.append(f"Until its last step, the loss of a run is over {part:,} tokens.")
    if status.tuning:
        lines.append("Tuning has not ended; more runs are planned when it has.")
    for run in status.runs:
        if run.state == FAILED:
            log = f" (traceback in {run.traceback})" if run.traceback else ""
            lines.append(f"{run.label} failed: {run.run.error}{log}")
    if status.command and status.counts[DONE] < len(status.runs) and not status.counts[RUNNING]:
        lines.append("To continue, repeat the last command used here; finished runs are kept:")
        lines.append(f"  {status.command}")
    return lines


def _fitted(runs: Sequence[RunStatus], width: int) -> Fitted:
    cells = list(zip(*map(_cells, runs), strict=True))
    styles = [_STYLES.get(run.state, "dim") for run in runs]
    columns = [
        Cells("state", cells[0], styles=styles),
        Cells("run", cells[1], breaks=SHORTENED),
        Cells("step", cells[2], rank=2),
        Cells("loss", cells[3], rank=IMPORTANT),
        Cells("speed", cells[4], rank=1),
        Cells("time", cells[5]),
    ]
    return fitted(columns, width)


def _too_narrow(view: Fitted) -> list[str]:
    return [f"Too narrow for {', '.join(view.dropped)}."] if view.dropped else []


def _cells(run: RunStatus) -> list[str]:
    budget = f" of {run.max_steps:,}" if run.max_steps else ""
    step = "" if run.state == WAITING else f"step {run.step:,}{budget}"
    speed = f"{run.tokens_per_second:,.0f} tokens/s" if run.tokens_per_second else ""
    return [run.state, run.label, step, _loss(run), speed, _time(run)]


def _loss(run: RunStatus) -> str:
    outcome = run.run.result.outcome
    if run.val_loss is not None:
        return f"val {run.val_loss:.4f}" + ("" if outcome in (None, OK) else f" {outcome}")
    return outcome or ("" if run.train_loss is None else f"train {run.train_loss:.4f}")


def _time(run: RunStatus) -> str:
    if run.state == DONE:
        return "" if run.seconds is None else f"in {duration(run.seconds)}"
    return "" if run.left is None or run.state == WAITING else f"about {duration(run.left)} left"
