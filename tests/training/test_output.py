"""Output that cannot be delivered ends nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lm_experiments.training.output import unbreakable_output


def test_a_pipe_without_a_reader_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with unbreakable_output():
            print("lost", flush=True)
            print("lost too", flush=True)
            print("still in the buffer")
        assert sys.stdout is pipe
        pipe.write("and after it\n")
        pipe.flush()


def test_output_that_is_read_comes_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with unbreakable_output():
            print("a line", file=sys.stderr)
            assert not sys.stderr.isatty()
    assert (tmp_path / "out").read_text() == "a line\n"
