"""``metrics.jsonl``, and files like it: one row for each logged step, appended as a run goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lm_experiments.rundir.atomic import jsonable, number_or_word, write_atomically

Row = dict[str, Any]

# The end of the file that `last_rows` reads: some dozens of rows.
TAIL_BYTES = 16384


def row_text(row: Row) -> str:
    """Return a row as the line that the file holds."""
    return json.dumps(jsonable(row), allow_nan=False) + "\n"


def read_rows(path: Path, key: str = "") -> list[Row]:
    """Return the rows of a file in written order, only those holding ``key`` where it is given.

    Lines that a kill or a bad disk has damaged are left out; no file gives no rows.
    """
    if not path.is_file():
        return []
    marker = f'"{key}"'.encode() if key else b""
    return list(_rows(line for line in path.read_bytes().splitlines() if marker in line))


def last_rows(path: Path) -> list[Row]:
    """Return the rows at the end of a file that may be growing."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return list(_rows(file.read().splitlines()))
    except OSError:
        return []


def loss_at(path: Path, step: int) -> float | None:
    """Return the newest validation loss at a step, None where it was not measured there."""
    found = [row["val/loss"] for row in read_rows(path, "val/loss") if row["step"] == step]
    return found[-1] if found and isinstance(found[-1], float) else None


def read_curve(path: Path, key: str) -> dict[int, float]:
    """Return the finite values of a metric by step, in order of the steps.

    A resumed run logs some steps twice; the later row is the one it went on from.
    """
    values = {row["step"]: row.get(key) for row in read_rows(path, key)}
    return {
        step: float(value)
        for step, value in sorted(values.items())
        if isinstance(value, (int, float)) and math.isfinite(value)
    }


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Replace the rows of a file, unless it holds just these."""
    text = "".join(map(row_text, rows))
    if not path.is_file() or path.read_bytes() != text.encode():
        write_atomically(path, text)


def keep_rows(path: Path, last: float) -> None:
    """Drop the rows of steps after ``last``, which are made again; no file stays none."""
    if path.is_file():
        write_rows(path, [row for row in read_rows(path) if row["step"] <= last])


def append_row(path: Path, row: Row) -> None:
    """Add a row to a file; an OSError names the file, also where the disk is full."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(row_text(row))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _rows(lines: Iterable[bytes]) -> Iterator[Row]:
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield {key: number_or_word(value) for key, value in row.items()}
