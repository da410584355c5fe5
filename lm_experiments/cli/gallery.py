"""Add studies to a gallery of published claims."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from lm_experiments.cli.arguments import answered, script_parser

USAGE = "%(prog)s [runs/NAME ...] [--out FOLDER]"
DESCRIPTION = """\
Write a page with one card for each published claim of these studies, those that do not hold first:
what was published, with its scale and its number of runs, beside what these runs found; the
verdict at this scale, why it may differ, what it cost, the command, the hash of the table and the
cell that was trained again last. Beside it lie each study's table.json (as NAME.json), what the
table lacks (NAME.origin.json) and the pictures.

Studies that are in the gallery stay there, with or without their folders; one of the same name is
replaced, and one whose NAME.json is removed is left out. Without a folder the page is written
again. Nothing in the folders is changed."""
EXAMPLES = """\
examples:
  python scripts/gallery.py runs/position runs/glu
  python scripts/gallery.py runs/* --out docs/gallery
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 for bad input."""
    parser = script_parser(USAGE, DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "sweeps", metavar="runs/NAME", nargs="*", type=Path, help="the folder of a study"
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=Path,
        default=Path("docs/gallery"),
        help="where to write (default: docs/gallery)",
    )
    options = parser.parse_args(arguments)
    return answered(lambda: _write(options))


def _write(options: argparse.Namespace) -> None:
    # Imported here, since the help is printed without numpy.
    from lm_experiments.report.gallery import write_gallery

    for path in write_gallery(options.sweeps, options.out):
        print(f"Wrote {path}")
