"""What commands in ``scripts/`` share: the form of their help, and how they answer bad input."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable


def script_parser(usage: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser whose help keeps the lines of its description and its examples."""
    return argparse.ArgumentParser(
        usage=usage,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def answered(action: Callable[[], object]) -> int:
    """Do what a command is for; return its exit status.

    Bad input is one sentence on stderr and status 2, Ctrl-C is status 130. What takes a while,
    such as preparing a corpus again, tells of itself on stderr.
    """
    logging.basicConfig(format="%(message)s")
    logging.getLogger("lm_experiments").setLevel(logging.INFO)
    try:
        action()
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130
    return 0
