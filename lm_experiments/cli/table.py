"""Print the table of a sweep, and write it and its pictures beside the runs."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lm_experiments.cli.arguments import answered, script_parser
from lm_experiments.errors import InputError
from lm_experiments.report import Report, Style, merged_report, show_report, write_report
from lm_experiments.report.style import AXES, DIGITS, USUAL
from lm_experiments.training.wandb.offline import PREFIX

USAGE = (
    "%(prog)s runs/NAME [runs/NAME ...] [--baseline ARM] [--allow-mixed] [--out FOLDER] [--check]\n"
    "         [--against AXIS] [--paper] [--columns TITLES] [--digits N] [--caption LATEX]\n"
    "         [--label LABEL] [--no-notes] [--arm-label ARM=LATEX ...]"
)
DESCRIPTION = """\
Print the table of a sweep or a study: one row per arm, with the mean validation loss over its
seeds, the paired difference to its reference with a 95 % interval and a verdict, size, cost and
outcome. Runs that failed, diverged or have not finished keep their place in the table. It works
while the sweep is still running; verdicts wait for its end.

The same table goes to table.md, table.csv, table.json and table.tex in the sweep's folder, the
validation loss of every arm to curves.png, the loss by a swept number of five values or more to
by_value.png, the differences to forest.png, those of a ladder to ladder.png, main effects and
interactions of a grid to effects.png and, of a tuned study, the loss by the tuned value to
sensitivity.png. report.html has all of it on one page. Nothing else is changed.

Several folders make one table: arms that are configured alike are one arm, and a run that lies in
two of them counts once. Such a table has no declaration of its own, so that it is exploratory, and
it is written only where --out says.

wandb:ENTITY/PROJECT/GROUP makes the very same table of what W&B has of a sweep, from whole
histories; the folder that it is written as goes into the one that --out names.

--check writes nothing. It reads every run again and answers what a reviewer would ask: whether
hashes, seeds, contrasts and losses are what was declared, and whether each loss is that of the
run's checkpoint, computed anew. The exit status is 1 where an answer is no."""
EXAMPLES = """\
examples:
  python scripts/table.py runs/grid
  python scripts/table.py runs/grid --baseline "post relu sinusoidal"
  python scripts/table.py runs/grid --allow-mixed
  python scripts/table.py runs/grid runs/more_seeds --out runs/both
  python scripts/table.py wandb:me/lm_experiments/grid --out fetched
  python scripts/table.py runs/grid --paper --against flops
  python scripts/table.py runs/grid --columns "val loss,vs baseline,verdict" --digits 3 --no-notes
  python scripts/table.py runs/grid --check
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 1 for a no of --check, 2 without a table."""
    parser = script_parser(USAGE, DESCRIPTION, EXAMPLES)
    add_options(parser)
    _add_style(parser)
    parser.add_argument(
        "--check", action="store_true", help="check the runs behind the table instead"
    )
    options = parser.parse_intermixed_args(arguments)
    return answered(lambda: _answer(options))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says which table is meant."""
    parser.add_argument(
        "sweeps", metavar="runs/NAME", nargs="+", help="the folder of a sweep, or wandb:..."
    )
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
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="write the table of several sweeps, or the sweep of wandb:..., into this folder",
    )


def report_of(options: argparse.Namespace, style: Style = USUAL) -> Report:
    """Write the table that the options mean, its pictures and its page."""
    folder, *more = options.sweeps
    mixed = options.allow_mixed
    if more:
        return merged_report([folder, *more], options.out, options.baseline, mixed, style)
    if options.out is not None:
        raise InputError(
            f"--out {options.out} is for several sweeps; the table of one is written into {folder}."
        )
    return write_report(folder, options.baseline, mixed, style)


def _add_style(parser: argparse.ArgumentParser) -> None:
    """Add how the table and its pictures are set."""
    parser.add_argument(
        "--against",
        metavar="AXIS",
        help=f"what the curves are drawn against: {', '.join(AXES)} "
        "(default: tokens where steps differ in size, else steps)",
    )
    parser.add_argument(
        "--paper", action="store_true", help="pictures as PDF and SVG too, as wide as a page"
    )
    parser.add_argument(
        "--columns",
        metavar="TITLES",
        help="the columns of the printed and the LaTeX table, separated by commas; "
        "diagnostics/STATISTIC[/PART] is one too",
    )
    _add_latex(parser)


def _add_latex(parser: argparse.ArgumentParser) -> None:
    """Add what is for table.tex alone."""
    parser.add_argument(
        "--digits", type=int, default=DIGITS, help=f"decimals of losses in table.tex ({DIGITS})"
    )
    parser.add_argument("--caption", metavar="LATEX", help="the caption of table.tex")
    parser.add_argument("--label", help="the label of table.tex (default: tab:NAME)")
    parser.add_argument("--no-notes", action="store_true", help="no notes under table.tex")
    parser.add_argument(
        "--arm-label",
        metavar="ARM=LATEX",
        action="append",
        default=[],
        help="what table.tex calls an arm; may be given for each",
    )


def _answer(options: argparse.Namespace) -> int:
    folder, *more = options.sweeps
    if folder.startswith(PREFIX) and not more:
        return _from_wandb(folder, options)
    if options.check:
        # Imports torch, which a table needs not.
        from lm_experiments.cli.check import check_sweep

        return check_sweep(Path(folder), more)
    show_report(report_of(options, style := _style(options)), titles=style.columns)
    return 0


def _from_wandb(source: str, options: argparse.Namespace) -> int:
    """Make the table of a sweep's records in W&B; they are kept where --out says."""
    # Imports torch, which a table of folders needs not.
    from lm_experiments.study.wandb_source import fetch

    style = _style(options)
    with tempfile.TemporaryDirectory() as temporary:
        folder = fetch(source, Path(options.out or temporary))
        report = write_report(folder, options.baseline, options.allow_mixed, style)
        show_report(report if options.out else replace(report, files=()), titles=style.columns)
    return 0


def _style(options: argparse.Namespace) -> Style:
    labels = [text.partition("=")[::2] for text in options.arm_label]
    if unclear := [arm for arm, label in labels if not label]:
        raise InputError(f"--arm-label {unclear[0]} names no label; type 'ARM=LABEL'.")
    titles = options.columns
    return Style(
        options.against,
        options.paper,
        None if titles is None else tuple(title.strip() for title in titles.split(",")),
        options.digits,
        options.caption,
        options.label,
        not options.no_notes,
        dict(labels),
    )
