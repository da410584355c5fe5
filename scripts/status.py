"""Show where a sweep stands: python scripts/status.py --help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lm_experiments.cli.status import show, watch
from lm_experiments.errors import InputError
from lm_experiments.report.progress import sweep_status

DESCRIPTION = """\
Show where a sweep stands: which runs are done, running, failed or waiting, how far each is, about
how long the rest takes, why runs failed, and the command that continues the sweep. On a terminal
this is a table; elsewhere each run is one line. Nothing is changed, and a sweep that is going on
is not disturbed.

A run is running while a process holds it; one without a result that no process holds was
interrupted. The time left goes by the runs that have ended, or by the speed of those that run."""
EXAMPLES = """\
examples:
  python scripts/status.py runs/grid
  python scripts/status.py runs/grid --watch 5
  python scripts/status.py runs/grid | grep failed
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 for a folder that is no sweep's."""
    options = _parser().parse_args(arguments)
    try:
        if options.watch is None:
            show(sweep_status(options.sweep), Console())
        else:
            watch(options.sweep, _positive(options.watch), Console())
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweep", metavar="runs/NAME", type=Path, help="the folder of a sweep")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=float,
        help="look again every so many seconds, until no run is left; Ctrl-C ends it",
    )
    return parser


def _positive(seconds: float) -> float:
    if not 0 < seconds < float("inf"):
        raise InputError(f"--watch {seconds:g} must be a number of seconds above 0, such as 5.")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
