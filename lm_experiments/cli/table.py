"""Print the table of a sweep, and write it and its pictures beside the runs."""

from __future__ import annotations

from collections.abc import Sequence

from lm_experiments.cli.arguments import answered, script_parser
from lm_experiments.report import show_report, write_report

USAGE = "%(prog)s runs/NAME [--baseline ARM] [--allow-mixed]"
DESCRIPTION = """\
Print the table of a sweep or a study: one row per arm, with the mean validation loss over its
seeds, the paired difference to its reference with a 95 % interval and a verdict, size, cost and
outcome. Runs that failed, diverged or have not finished keep their place in the table. It works
while the sweep is still running; verdicts wait for its end.

The same table goes to table.md, table.csv, table.json and table.tex in the sweep's folder, the
validation loss of every arm to curves.png, the differences to forest.png, main effects and
interactions of a grid to effects.png and, of a tuned study, the loss by the tuned value to
sensitivity.png. Nothing else is changed."""
EXAMPLES = """\
examples:
  python scripts/table.py runs/grid
  python scripts/table.py runs/grid --baseline "post relu sinusoidal"
  python scripts/table.py runs/grid --allow-mixed
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 when no table can be made."""
    parser = script_parser(USAGE, DESCRIPTION, EXAMPLES)
    parser.add_argument("sweep", metavar="runs/NAME", help="the folder of a sweep")
    parser.add_argument(
        "--baseline",
        metavar="ARM",
        help="the arm to compare with (default: the study's, or the first of the command); "
        "with any other the table is exploratory: it gives no verdicts",
    )
    parser.add_argument(
        "--allow-mixed",
        action="store_true",
        help="draw runs that differ in data, code, evaluation or budget, with a warning",
    )
    options = parser.parse_args(arguments)
    return answered(
        lambda: show_report(write_report(options.sweep, options.baseline, options.allow_mixed))
    )
