"""What every test of fault injection must leave as it found it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.faults import fault_place
from harness.processes import Place

LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)


def _inherited() -> dict[str, object]:
    """Return what later commands would inherit from this process."""
    umask = os.umask(0o022)
    os.umask(umask)
    return {"umask": umask, "limits": [resource.getrlimit(number) for number in LIMITS]}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder to type commands in."""
    return fault_place(tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_left_to_later_tests() -> Iterator[None]:
    """Fail the test that changes a limit, and not those that starve of it afterwards."""
    before = _inherited()
    yield
    assert _inherited() == before
