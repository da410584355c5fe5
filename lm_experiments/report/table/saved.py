"""A table read back from its `table.json`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.report.table.json_table import FORMAT
from lm_experiments.report.table.published import RULE


def read_table(path: Path) -> dict[str, Any]:
    """Return what the file says; `InputError` where it is not there or no table."""
    if not path.is_file():
        raise InputError(f"There is no table {path}; python scripts/table.py runs/NAME makes it.")
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise not_a_table(path) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise not_a_table(path)
    return content


def not_a_table(path: Path) -> InputError:
    """Return the error for a file that does not hold what a table has."""
    return InputError(
        f"{path} is not a table of this program; python scripts/table.py {path.parent} makes one."
    )


def table_hash(path: Path) -> str:
    """Return the SHA-256 of a table's file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def published_lines(path: Path) -> list[str]:
    """Return the published claims of a table with their verdicts, and their rule; none without."""
    try:
        found = [item["sentence"] for item in read_table(path).get("published", [])]
    except (KeyError, TypeError) as error:
        raise not_a_table(path) from error
    return [*found, RULE] if found else []
