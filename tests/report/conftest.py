"""The fixtures every test of the report starts from: a sweep or study to fill with runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
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


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that the test writes, as they were when they were saved."""
    saved: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        saved.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return saved
