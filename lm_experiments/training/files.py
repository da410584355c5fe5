"""Files that are whole or absent."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

# How the names of files end that are still being written.
UNFINISHED = ".part"


def remove_unfinished(folder: Path, names: str = "*") -> None:
    """Remove what a killed process left half written; nobody may be writing there now."""
    for path in folder.glob(f"{names}{UNFINISHED}"):
        path.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 file so that nobody ever sees half of it; what was there is replaced.

    Raises:
        OSError: naming the file, where it cannot be written.
    """
    try:
        _write(path, text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write(path: Path, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON, whole or not at all; the value must hold no bare nan or infinity."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, text + "\n")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
