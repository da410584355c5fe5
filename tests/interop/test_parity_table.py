"""The table of logit differences in CONTRIBUTING.md, and the command that prints it."""

from __future__ import annotations

from pathlib import Path

import parity

from lm_experiments.interop import FAMILIES

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


def rows_after(heading: str, lines: list[str]) -> list[list[str]]:
    """The cells of a Markdown table, below its heading and the line under that."""
    start = lines.index(heading) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def check(lines: list[str]) -> None:
    rows = rows_after(parity.HEADING, lines)
    assert [row[0] for row in rows] == list(FAMILIES)
    for name, *differences in rows:
        assert len(differences) == 4, name
        assert all(0 <= float(value) <= parity.TOLERANCE for value in differences), name


def test_the_table_is_printed() -> None:
    check(list(parity.table()))


def test_contributing_has_the_table_with_every_family() -> None:
    lines = CONTRIBUTING.read_text(encoding="utf-8").splitlines()
    assert parity.HEADING in lines, "paste what python tests/interop/parity.py prints"
    check(lines)
