"""What a command of ``scripts/`` does once its words are read, and how it answers bad input."""

import logging
import os
import sys
from types import TracebackType

# Pictures are files. A notebook's backend, which its shell hands on, may not be importable here.
os.environ["MPLBACKEND"] = "Agg"
# It tells of a home that cannot be written, and does without.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

for _stream in (sys.stdout, sys.stderr):
    # A terminal that lacks a character of a label shows it escaped, instead of an error.
    if hasattr(_stream, "reconfigure"):
        _stream.reconfigure(errors="backslashreplace")


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    # Ctrl-C while the imports are loading.
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _show
