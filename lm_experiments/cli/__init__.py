"""What a command of ``scripts/`` does once its words are read, and how it answers bad input."""

import sys

for _stream in (sys.stdout, sys.stderr):
    # A terminal that lacks a character of a label shows it escaped, instead of an error.
    if hasattr(_stream, "reconfigure"):
        _stream.reconfigure(errors="backslashreplace")
