"""Write the page of a sweep or study, which a browser opens from disk."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from lm_experiments.cli.arguments import answered, script_parser
from lm_experiments.cli.table import add_options, report_of
from lm_experiments.errors import InputError
from lm_experiments.report.page import PAGE
from lm_experiments.report.page.words import answer
from lm_experiments.report.table.notes import headline
from lm_experiments.rundir.words import size

USAGE = "%(prog)s runs/NAME [runs/NAME ...] [--baseline ARM] [--allow-mixed] [--out FOLDER]"
DESCRIPTION = """\
Write report.html beside the table of a sweep or a study: one file, which needs no network. It says
which arm won, how sure that is, what it cost, why it happened, and whether it can be trusted and
repeated: verdicts in words, the table, differences, curves, effects, tuning, costs, what each arm
changes, samples, failures with the end of their logs, the ledger, and the command.

A sweep writes it at its end; while it goes on, a page without comparisons is written as runs end.
This command writes all of the page at any time, and the table and the pictures with it. That is a
look at the results, which the ledger keeps. Several folders make one page, written into --out."""
EXAMPLES = """\
examples:
  python scripts/report.py runs/grid
  python scripts/report.py runs/grid runs/more_seeds --out runs/both
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 without a page."""
    parser = script_parser(USAGE, DESCRIPTION, EXAMPLES)
    add_options(parser)
    options = parser.parse_intermixed_args(arguments)
    return answered(lambda: _write(options))


def _write(options: argparse.Namespace) -> None:
    if options.out is None and len(options.sweeps) > 1:
        raise InputError("The page of several sweeps needs a folder; type --out FOLDER.")
    report = report_of(options)
    [page] = [path for path in report.files if path.name == PAGE]
    print(f"{report.table.sweep.record.name}: {headline(report.table)}")
    print(answer(report.table))
    print(f"Wrote {page} ({size(page.stat().st_size)}); open it in a browser.")
