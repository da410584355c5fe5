"""Measure speed as ratios: python scripts/benchmark.py --help."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

DESCRIPTION = """\
Measure speed on the CPU. All contestants of a subject take turns in one process, round after
round, and what counts is the ratio of their times within a round: it holds on a busy machine too,
where seconds mean little. Rounds are short; ask for more of them until the spread is small.

subjects:
  peers      one training step of our Transformer beside litgpt's and transformers' Llama
             (pip install -e '.[peers]')
  lightning  a whole Lightning run against a bare loop over the same steps
  startup    the help, and one more run of a sweep up to its first step
  sweep      twelve tiny runs side by side through Ray, against one after another
  guards     checkpoints and the look for bad numbers, against the step they protect"""
EXAMPLES = """\
examples:
  python scripts/benchmark.py peers
  python scripts/benchmark.py lightning --rounds 40 --json lightning.json
"""
# Each subject with its default number of rounds; its module is imported only when asked for.
SUBJECTS = {
    "peers": ("peers", 12),
    "lightning": ("lightning_run", 20),
    "startup": ("startup", 8),
    "guards": ("guards", 6),
    "sweep": ("sweep", 1),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 where the subject cannot be measured."""
    parser = argparse.ArgumentParser(
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subject", metavar="SUBJECT", choices=SUBJECTS, help=", ".join(SUBJECTS))
    parser.add_argument("--rounds", type=int, help="how often each contestant is timed")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the numbers there, too")
    options = parser.parse_args(arguments)
    module, rounds = SUBJECTS[options.subject]
    asked = rounds if options.rounds is None else options.rounds
    try:
        return _measure(options.subject, module, asked, options.json)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


def _measure(subject: str, module: str, rounds: int, file: Path | None) -> int:
    from lm_experiments.benchmark.rounds import check_rounds, table

    check_rounds(rounds)
    measured = importlib.import_module(f"lm_experiments.benchmark.{module}")
    report = getattr(measured, subject)(rounds)
    print(table(report))
    if file is not None:
        text = json.dumps({"subject": subject, **report.plain()}, indent=2)
        file.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
