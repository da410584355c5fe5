"""Output that nobody reads any more: a pipe whose reader has ended, a terminal that was closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class Unbreakable:
    """A stream that goes on without a word once what is written can no longer be delivered."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, where it can be written."""
        try:
            return self._stream.write(text)
        except OSError:
            self._give_up()
            return len(text)

    def flush(self) -> None:
        """Flush the stream, where that is possible."""
        try:
            self._stream.flush()
        except OSError:
            self._give_up()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self) -> None:
        """Let all that follows, and what is still in the buffers, go nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextmanager
def unbreakable_output() -> Iterator[None]:
    """Keep output from ending the program: a training is worth more than what is said of it."""
    before = sys.stdout, sys.stderr
    streams = Unbreakable(sys.stdout), Unbreakable(sys.stderr)
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        for stream in streams:
            stream.flush()
        sys.stdout, sys.stderr = before
