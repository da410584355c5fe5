"""The fixture every test of the report starts from: a sweep to fill with synthetic runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_runs import SweepFactory


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFactory:
    """An empty sweep called "grid"."""
    return SweepFactory(tmp_path / "grid")
