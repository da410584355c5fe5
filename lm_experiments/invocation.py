"""How a command was typed: as ``python scripts/NAME.py`` or as ``lm-experiments NAME``."""

from __future__ import annotations

import re
import shlex
import sys

CONSOLE_SCRIPT = "lm-experiments"


def program() -> str:
    """Return the running command without its arguments."""
    return sys.argv[0] if _from_console_script() else f"python {shlex.quote(sys.argv[0])}"


def command_line() -> str:
    """Return the running command with its arguments, to type it again in a shell."""
    return " ".join([program(), shlex.join(sys.argv[1:])]).rstrip()


def as_typed(text: str) -> str:
    """Return a help text or message with commands in the form that the user typed.

    Texts are written with ``python scripts/NAME.py``.
    """
    if not _from_console_script():
        return text
    return re.sub(r"python scripts/(\w+)\.py", rf"{CONSOLE_SCRIPT} \1", text)


def _from_console_script() -> bool:
    # cli.main puts both words into sys.argv[0].
    return sys.argv[0].startswith(f"{CONSOLE_SCRIPT} ")
