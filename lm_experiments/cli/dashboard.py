"""Create a view and a report of a sweep in W&B."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from lm_experiments.cli.arguments import answered, script_parser
from lm_experiments.rundir.yaml_text import dump_yaml

USAGE = "%(prog)s runs/NAME [--entity NAME] [--print]"
DESCRIPTION = """\
Create a saved view and a report of a sweep in W&B, both with the runs of its group alone: the
table and the pictures of its summary, the validation loss against steps, tokens, FLOPs and seconds,
and everything else that was logged, by arm, each with a band of the standard error over seeds.

It needs wandb-workspaces: pip install 'lm_experiments[dashboard]'. Each call creates new ones."""
EXAMPLES = """\
examples:
  python scripts/dashboard.py runs/grid
  python scripts/dashboard.py runs/grid --print
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 2 for bad input."""
    parser = script_parser(USAGE, DESCRIPTION, EXAMPLES)
    parser.add_argument("sweep", metavar="runs/NAME", help="the folder of a sweep")
    parser.add_argument(
        "--entity", help="the user or team (default: the runs' own, or your default one)"
    )
    parser.add_argument(
        "--print",
        action="store_true",
        help="print what would be created, as YAML, and create nothing; no network is needed",
    )
    options = parser.parse_args(arguments)
    return answered(lambda: _answer(options))


def _answer(options: argparse.Namespace) -> None:
    # Imports W&B's client, which the help need not wait for.
    from lm_experiments.study.wandb_dashboard import build, default_entity, save

    folder = Path(options.sweep)
    if options.print:
        outline = build(folder, options.entity or "").outline()
        # A list that occurs twice would be written as a reference.
        print(dump_yaml(json.loads(json.dumps(outline))), end="")
        return
    for url in save(build(folder, options.entity or default_entity())):
        print(f"W&B: {url}")
