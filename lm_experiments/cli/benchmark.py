"""``benchmark``: speed as ratios."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from lm_experiments.cli.arguments import answered, script_parser

DESCRIPTION = """\
Measure speed on the CPU. All contestants of a subject take turns in one process, round after
round, and what counts is the ratio of their times within a round: it holds on a busy machine too,
where seconds mean little. Rounds are short; ask for more of them until the spread is small.

subjects:
  peers      one training step of our Transformer beside litgpt's and transformers' Llama
             (pip install -e '.[peers]')
  lightning  a whole Lightning run against a bare loop over the same steps
  startup    the help, and one more run of a sweep up to its first step
  packing    twelve tiny runs side by side, against one after another
  allocation training steps with freed memory kept in the process, and given back
  diagnostics  training steps with diagnostics.every=auto, and without
  guards     checkpoints and checks for non-finite losses, against the step they protect"""
EXAMPLES = """\
examples:
  python scripts/benchmark.py peers
  python scripts/benchmark.py lightning --rounds 40 --json lightning.json"""
# The module and the default number of rounds of each subject.
SUBJECTS = {
    "peers": ("peers", 12),
    "lightning": ("lightning_run", 20),
    "startup": ("startup", 8),
    "allocation": ("allocation", 12),
    "diagnostics": ("diagnostics", 20),
    "guards": ("guards", 6),
    "packing": ("packing", 1),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 if the subject cannot be measured."""
    parser = script_parser("%(prog)s SUBJECT [--rounds N] [--json FILE]", DESCRIPTION, EXAMPLES)
    parser.add_argument("subject", metavar="SUBJECT", choices=SUBJECTS, help=", ".join(SUBJECTS))
    parser.add_argument("--rounds", type=int, help="how often each contestant is timed")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the numbers there, too")
    options = parser.parse_args(arguments)
    return answered(lambda: _measure(options))


def _measure(options: argparse.Namespace) -> None:
    # Each subject imports packages that the help and the other subjects do without.
    from lm_experiments.benchmark.rounds import check_rounds, table

    module, default_rounds = SUBJECTS[options.subject]
    rounds = default_rounds if options.rounds is None else options.rounds
    check_rounds(rounds)
    measured = importlib.import_module(f"lm_experiments.benchmark.{module}")
    report = getattr(measured, options.subject)(rounds)
    print(table(report))
    if options.json is not None:
        text = json.dumps({"subject": options.subject, **report.plain()}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
