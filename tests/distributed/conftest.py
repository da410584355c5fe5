"""Runs of several processes on one machine, each test with a limit on its time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.processes import time_limit


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    with time_limit(120):
        yield
