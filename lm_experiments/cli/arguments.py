"""What commands in ``scripts/`` share: the form of their help, and how they answer bad input."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def script_parser(usage: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser whose help keeps the lines of its description and its examples."""
    return argparse.ArgumentParser(
        usage=usage,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def answered(action: Callable[[], int | None]) -> int:
    """Do what a command is for; return its exit status.

    Bad input is one sentence on stderr and status 2, Ctrl-C is status 130. What takes a while,
    such as preparing a corpus again, tells of itself on stderr.
    """
    try:
        with _told_on_stderr():
            return action() or 0
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130


@contextmanager
def _told_on_stderr() -> Iterator[None]:
    """Show what the package logs, where nobody listens to it yet."""
    logger, handler = logging.getLogger("lm_experiments"), logging.StreamHandler()
    if logger.hasHandlers():
        yield
        return
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
