"""Print the table of a sweep and write `table.md`, `table.csv` and `curves.png` beside its runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lm_experiments.report import ReportError, show_report, write_report

DESCRIPTION = """\
Print the table of a sweep: one row per arm, with the mean validation loss over its seeds, its
spread, the paired difference to the baseline, size, cost and outcome. Runs that failed, diverged
or have not finished keep their place in the table. It works while the sweep is still running.

The same table goes to table.md and table.csv in the sweep's folder, and the validation loss of
every arm to curves.png. Nothing else is changed."""
EXAMPLES = """\
examples:
  python scripts/table.py runs/grid
  python scripts/table.py runs/grid --baseline "post relu sinusoidal"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 when no table can be made."""
    parser = argparse.ArgumentParser(
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweep", metavar="runs/NAME", help="the folder of a sweep")
    parser.add_argument(
        "--baseline", metavar="ARM", help="the arm to compare with (default: the first declared)"
    )
    options = parser.parse_args(arguments)
    try:
        report = write_report(options.sweep, options.baseline)
    except (ReportError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    show_report(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
