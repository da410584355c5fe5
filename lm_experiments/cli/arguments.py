"""What the commands share: the form of their help, the user's code, and exit statuses."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TextIO

from lm_experiments.invocation import as_typed, program


def script_parser(usage: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser whose help keeps the lines of its description and its examples."""
    return argparse.ArgumentParser(
        prog=program(),
        usage=usage,
        description=as_typed(description),
        epilog=as_typed(epilog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def offer_average(parser: argparse.ArgumentParser) -> None:
    """Add the option that takes a run's average of its weights."""
    parser.add_argument(
        "--average", action="store_true", help="the average of the weights, not the last ones"
    )


def load_user_code(words: Sequence[str]) -> list[str]:
    """Register the user's own components; return the words without ``code_paths=[FILE,...]``.

    Components come from the entry points of installed packages, and from the files named. A file
    that is missing or raises an error is an InputError.
    """
    # Imports Hydra, which the help need not wait for.
    from lm_experiments.training.user_code import load_installed, take_code_paths

    load_installed()
    return take_code_paths(words)


def answered(action: Callable[[], int | None]) -> int:
    """Run a command's action; return the exit status.

    It is what the action returns, 0 for None; 2 for bad input, after one sentence on stderr; 130
    for Ctrl-C. Log messages of the package go to stderr, for example while a corpus is prepared.
    """
    try:
        # A program that calls the command may show log messages itself.
        shown = logging.getLogger("lm_experiments").hasHandlers()
        with nullcontext() if shown else shown_log(sys.stderr):
            return action() or 0
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {as_typed(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130


@contextmanager
def shown_log(stream: TextIO) -> Iterator[None]:
    """Write the package's log messages to a stream."""
    logger, handler = logging.getLogger("lm_experiments"), logging.StreamHandler(stream)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
