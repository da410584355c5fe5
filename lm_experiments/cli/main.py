"""The console script ``lm-experiments NAME ...``: one command for each file of ``scripts/``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from lm_experiments.errors import did_you_mean
from lm_experiments.invocation import CONSOLE_SCRIPT

# Each command is a module of this package with a function `main`.
COMMANDS = {
    "train": "train one run, or with -m a sweep",
    "table": "print the table of a sweep and write its files",
    "report": "write the page of a sweep",
    "dashboard": "create a view and a report of a sweep in W&B",
    "status": "show where a sweep stands",
    "components": "list the components that can be chosen",
    "generate": "write text with a trained run",
    "evaluate": "print the loss of trained runs on other texts and context lengths",
    "export_hf": "write a run as a Hugging Face folder",
    "prepare_data": "download and encode a corpus ahead of time",
    "reproduce": "train cells of a table again and compare",
    "inspect_init": "draw what layers do before training",
    "gallery": "write a page of published claims held against studies",
    "benchmark": "measure speed as ratios",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command by its name; return its exit status, or 2 for an unknown name."""
    name, *words = [*(sys.argv[1:] if arguments is None else arguments)] or ["--help"]
    if name in ("-h", "--help"):
        print(f"usage: {CONSOLE_SCRIPT} COMMAND [ARGUMENT ...]\n")
        print("\n".join(f"  {name:14}{summary}" for name, summary in COMMANDS.items()))
        print(f"\n{CONSOLE_SCRIPT} COMMAND --help explains each.")
        return 0
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS, f"{CONSOLE_SCRIPT} ")
        known = ", ".join(COMMANDS)
        print(f"error: {name} is not a command; the commands are {known}.{hint}", file=sys.stderr)
        return 2
    # Hydra and argparse read the arguments from here, and messages how the command was typed.
    sys.argv = [f"{CONSOLE_SCRIPT} {name}", *words]
    # Imported by name, since one command's imports take seconds that another need not wait for.
    status: int | None = importlib.import_module(f"lm_experiments.cli.{name}").main()
    return status or 0


if __name__ == "__main__":
    sys.exit(main())
