"""Runs of several processes on one machine, each test with a limit on its time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Commands that are started, stopped and accounted for.
sys.path[:0] = [str(HERE), str(HERE.parent / "faults")]


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    from processes import time_limit

    with time_limit(120):
        yield
