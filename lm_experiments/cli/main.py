"""The console script ``lm-experiments NAME ...``: one command for each file of ``scripts/``."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

from lm_experiments.invocation import CONSOLE_SCRIPT

# Each command is a module of this package with a function `main`.
COMMANDS = {
    "train": "train one run, or with -m a sweep",
    "table": "print the table of a sweep and write its files",
    "status": "show where a sweep stands",
    "components": "list the components that can be chosen",
    "generate": "write text with a trained run",
    "evaluate": "print the loss of trained runs on other texts and context lengths",
    "export_hf": "write a run as a Hugging Face folder",
    "prepare_data": "download and encode a corpus ahead of time",
    "reproduce": "train cells of a table again and compare",
    "benchmark": "measure speed as ratios",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command by its name; return its exit status, or 2 for an unknown name."""
    name, *words = [*(sys.argv[1:] if arguments is None else arguments)] or ["--help"]
    if name in ("-h", "--help"):
        print(_usage())
        return 0
    if name not in COMMANDS:
        print(f"error: {_unknown(name)}", file=sys.stderr)
        return 2
    # Hydra and argparse read the arguments from here, and messages how the command was typed.
    sys.argv = [f"{CONSOLE_SCRIPT} {name}", *words]
    # Imported by name, since one command's imports take seconds that another need not wait for.
    status: int | None = importlib.import_module(f"lm_experiments.cli.{name}").main()
    return status or 0


def _usage() -> str:
    lines = [f"  {name:14}{summary}" for name, summary in COMMANDS.items()]
    usage = f"usage: {CONSOLE_SCRIPT} COMMAND [ARGUMENT ...]"
    return "\n".join([usage, "", *lines, "", f"{CONSOLE_SCRIPT} COMMAND --help explains each."])


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f" Did you mean {CONSOLE_SCRIPT} {near[0]}?" if near else ""
    return f"{name} is not a command; the commands are {', '.join(COMMANDS)}.{hint}"


if __name__ == "__main__":
    sys.exit(main())
