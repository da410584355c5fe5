"""Files that are whole or absent, and what they hold."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .typed import ConfigError

# How the names of files end that are still being written.
UNFINISHED = ".part"
RESULT = "result.json"
STATUSES = ("done", "failed", "interrupted")


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
        Path(temporary).chmod(0o666 & ~_UMASK)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON, whole or not at all; the value must hold no bare nan or infinity."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, text + "\n")


def read_json(path: Path) -> Any:
    """Return what a file holds, None where it is not there or is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def read_result(run_dir: Path) -> dict[str, Any] | None:
    """Return the run's ``result.json``, or None where there is none.

    Raises:
        ConfigError: where it is there and does not say how the run ended.
    """
    path = run_dir / RESULT
    try:
        result = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        result = None
    if not isinstance(result, dict) or result.get("status") not in STATUSES:
        raise ConfigError(
            f"{path} is damaged; remove it, and the same command trains the run again."
        )
    return result


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


# Looked at once, while nothing else runs: it can be read only by setting it for a moment.
_UMASK = _umask()
