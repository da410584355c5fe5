"""What can be seen of a run from its files alone, without disturbing the process that trains it."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm_experiments.training.typed import ConfigError

# The end of metrics.jsonl that is read: some dozens of rows.
TAIL_BYTES = 16384
_MAX_STEPS = re.compile(r"^trainer:\n(?:[ #].*\n)*?  max_steps: (\d+)$", re.MULTILINE)


def is_held(lock: Path) -> bool:
    """Return whether a process holds the run's lock, without changing the file.

    A shared lock is asked for, so that two who look do not take each other for a training.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def last_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows at the end of ``metrics.jsonl`` that are whole."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ConfigError: where it holds something else.
        OSError: where it cannot be read.
    """
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise damaged(path) from error
    if not isinstance(value, dict):
        raise damaged(path)
    return value


def damaged(path: Path) -> ConfigError:
    """Return the error for a file that does not hold what it should."""
    return ConfigError(
        f"{path} is damaged; delete it and repeat the command that started the sweep."
    )


def max_steps_of(directory: Path) -> int | None:
    """Return the run's budget; a thousand configurations are too many for a YAML parser."""
    try:
        found = _MAX_STEPS.search((directory / "config.yaml").read_text(encoding="utf-8"))
    except OSError:
        return None
    return int(found[1]) if found else None


def number(value: Any) -> float | None:
    """Return a number of JSON, where "nan" and "inf" are words."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
