"""``benchmark``: speed as ratios."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lm_experiments.cli.arguments import answered, script_parser

DESCRIPTION = """\
Measure speed, of steps on the GPU where there is one. All contestants of a subject take turns,
round after round, and what counts is the ratio of their times within a round: it holds on a busy
machine too, where seconds mean little. Rounds are short; ask for more until the spread is small.

subjects:
{subjects}"""
EXAMPLES = """\
examples:
  python scripts/benchmark.py peers
  python scripts/benchmark.py lightning --rounds 40 --json lightning.json"""


class Subject(NamedTuple):
    """A function of a module, its default number of rounds, and what it measures."""

    module: str
    function: str
    rounds: int
    about: str


SUBJECTS = {
    "peers": Subject("peers", "peers", 12, "a training step beside other programs' Llamas"),
    "compiled": Subject("peers", "compiled_peers", 12, "the same, all models compiled"),
    "lightning": Subject("lightning_run", "lightning", 20, "a run against a bare loop"),
    "startup": Subject(
        "startup", "startup", 8, "the help, and a sweep's next run to its first step"
    ),
    "allocation": Subject("allocation", "allocation", 12, "freed memory kept, and given back"),
    "guards": Subject(
        "guards", "guards", 6, "checkpoints and checks against the step they protect"
    ),
    "packing": Subject("packing", "packing", 1, "twelve runs side by side, and one after another"),
    "diagnostics": Subject("diagnostics", "diagnostics", 20, "steps with diagnostics, and without"),
    "head": Subject("head", "head", 3, "the loss of the head by vocabulary and chunk, its memory"),
    "compile": Subject(
        "compilation", "compilation", 6, "compiling, and the steps that pay it back"
    ),
    "eval": Subject("evaluation", "evaluation", 5, "the share of a run that is validation"),
    "checkpoint": Subject("checkpoint", "checkpoint", 5, "to save, verify and load, by size"),
    "planning": Subject("planning", "planning", 1, "the plan of a sweep by arms and seeds"),
    "attention": Subject(
        "attention", "attention", 10, "PyTorch's kernels, and whether they repeat"
    ),
    "determinism": Subject("determinism", "determinism", 6, "deterministic steps, trained twice"),
    "growth": Subject(
        "growth", "growth", 2, "time and memory by context, depth, width, vocabulary"
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 if the subject cannot be measured."""
    subjects = "\n".join(f"  {name:11}{subject.about}" for name, subject in SUBJECTS.items())
    description = DESCRIPTION.format(subjects=subjects)
    parser = script_parser("%(prog)s SUBJECT [--rounds N] [--json FILE]", description, EXAMPLES)
    parser.add_argument("subject", metavar="SUBJECT", choices=SUBJECTS, help=", ".join(SUBJECTS))
    parser.add_argument("--rounds", type=int, help="how often each contestant is timed")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the numbers there, too")
    options = parser.parse_args(arguments)
    return answered(lambda: _measure(options))


def _measure(options: argparse.Namespace) -> None:
    # Each subject imports packages that the help and the other subjects do without.
    from lm_experiments.benchmark.rounds import check_rounds, table

    subject = SUBJECTS[options.subject]
    rounds = subject.rounds if options.rounds is None else options.rounds
    check_rounds(rounds)
    measured = importlib.import_module(f"lm_experiments.benchmark.{subject.module}")
    report = getattr(measured, subject.function)(rounds)
    print(table(report))
    if options.json is not None:
        text = json.dumps({"subject": options.subject, **report.plain()}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
