"""Train cells of a table again, and compare the losses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lm_experiments.cli.arguments import answered, script_parser
from lm_experiments.errors import InputError
from lm_experiments.report.table.saved import published_lines

USAGE = "%(prog)s TABLE [--cells N] [--out FOLDER] [--seed S] [--published] [code_paths=[FILE,...]]"
DESCRIPTION = """\
Train cells of a table again, each from the config.yaml that its run recorded, and compare the
validation loss with what the table says. The baseline is always among them; the other arms, and
one seed of each, are drawn by --seed. The table's runs are only read.

On the same kind of machine and with the same code the losses are equal to the last bit.
Elsewhere they are compared with the table's own noise: two standard deviations over the seeds of
the arm, or 0.5 % of the loss where an arm has fewer than three seeds.

Where the study holds published claims against its table, they follow, each with its sources and its
verdict; --published prints them alone, and trains nothing.

The exit status is 0 if all cells hold, 1 if one differs or fails, 2 if it cannot be
done."""
EXAMPLES = """\
examples:
  python scripts/reproduce.py runs/grid/table.json
  python scripts/reproduce.py runs/grid/table.json --cells 5 --seed 1 --out runs/grid-again
  python scripts/reproduce.py runs/grid/table.json code_paths=[my_norm.py]
  python scripts/reproduce.py runs/glu/table.json --published

Code is never run from a run directory: where runs have components of your own, name their file
with code_paths, as for scripts/train.py."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see the description for its exit status."""
    parser = script_parser(USAGE, DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "table", metavar="TABLE", type=Path, help="runs/NAME/table.json, by scripts/table.py"
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--cells", type=int, default=3, help="how many to train (default: 3)")
    parser.add_argument("--out", type=Path, help="a new folder (default: runs/NAME-reproduced)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw of cells (default: 0)")
    parser.add_argument(
        "--published", action="store_true", help="print the published claims and train nothing"
    )
    options = parser.parse_intermixed_args(arguments)
    return answered(lambda: _claims(options) if options.published else _reproduce(options))


def _claims(options: argparse.Namespace) -> int:
    lines = published_lines(options.table)
    if not lines:
        raise InputError(
            f"{options.table} holds no published claims; a study has them under published:, see "
            "docs/studies.md."
        )
    print("\n\n".join(lines))
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    # Imported here, since the help is printed without torch.
    from lm_experiments.study import reproduce
    from lm_experiments.training.user_code import load_installed

    load_installed()
    code_paths = reproduce.given_code(options.words)
    claims = published_lines(options.table)
    cells = reproduce.draw_cells(options.table, options.cells, options.seed)
    out = options.out or reproduce.default_folder(options.table)
    reproduce.check_fresh(out)
    # All are checked before the first is trained.
    runs = [reproduce.plan_cell(cell, out, code_paths) for cell in cells]
    for warning in reproduce.code_warnings(cells):
        print(f"warning: {warning}", file=sys.stderr)
    found = []
    for cell, run in zip(cells, runs, strict=True):
        print(f"Training {cell.label} again in {run.directory}", flush=True)
        found.append(reproduce.train_again(cell, run))
    reproduce.record(out, options.table, found)
    print("\n".join(reproduce.result_lines(found)))
    for claim in claims:
        print(f"\n{claim}")
    return 0 if all(item.reproduced for item in found) else 1
