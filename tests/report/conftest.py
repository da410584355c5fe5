"""The fixtures every test of the report starts from: a sweep or study to fill with runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_runs import SweepFactory
from synthetic_studies import StudyFactory


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFactory:
    """An empty sweep called "grid"."""
    return SweepFactory(tmp_path / "grid")


@pytest.fixture
def study(tmp_path: Path) -> StudyFactory:
    """A study called "norms": five arms, five seeds, no tuning, no run written yet."""
    return StudyFactory(tmp_path / "norms")
