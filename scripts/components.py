"""List the components that can be chosen: python scripts/components.py --help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from lm_experiments.cli.components import chosen_groups, show
from lm_experiments.registry import GROUPS
from lm_experiments.training.user_code import load_installed, take_code_paths

DESCRIPTION = """\
List what can be chosen for each part of the architecture, and as tokenizer, optimizer, schedule
and logger: how it is typed, what it does, and its options at their defaults. On a terminal this is
a table; elsewhere each component is one line.

Your own components are listed too: those of installed packages always, those in a file of yours
where code_paths names it, as for scripts/train.py."""
EXAMPLES = """\
examples:
  python scripts/components.py
  python scripts/components.py position
  python scripts/components.py norm code_paths=[my_norm.py]
  python scripts/components.py | grep Shazeer
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 where something cannot be listed."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [-h] [GROUP ...] [code_paths=[FILE,...]]",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="GROUP",
        help=f"{', '.join(GROUPS)} (default: all of them)",
    )
    words = parser.parse_args(arguments).words
    try:
        load_installed()
        show(chosen_groups(take_code_paths(words)), Console())
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
