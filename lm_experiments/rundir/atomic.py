"""Files that are whole or absent."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_experiments.rundir.names import damaged

# How the names of files end that are still being written.
UNFINISHED = ".part"
# JSON has no words for these numbers.
SPECIAL_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def remove_unfinished(folder: Path, names: str = "*") -> None:
    """Remove what a killed process left half written; nobody may be writing there now."""
    for path in folder.glob(f"{names}{UNFINISHED}"):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder so that nobody ever sees half of it under its name; or nothing."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    going = path.with_name(f".{path.name.strip('.')}.old{UNFINISHED}")
    shutil.rmtree(going, ignore_errors=True)
    path.replace(going)
    shutil.rmtree(going)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that nobody ever sees half of it; what was there is replaced; text is UTF-8.

    An `OSError` names this file.
    """
    temporary: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(UNFINISHED, f".{path.name}.", path.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_UMASK)
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        # Nothing is left of it where it took the file's place.
        if temporary:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON, whole or not at all; nan and infinities become words."""
    text = json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, text + "\n")


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; `FileNotFoundError`, or `InputError` for another value."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        raise damaged(path, "it is not JSON") from None
    if not isinstance(value, dict):
        raise damaged(path, "it holds no object")
    return value


def jsonable(value: Any) -> Any:
    """Return nested plain values with numbers that JSON lacks as words."""
    if isinstance(value, Mapping):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [jsonable(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number_or_word(value: Any) -> Any:
    """Return a value of JSON with "nan", "inf" and "-inf" as the numbers they stand for."""
    return SPECIAL_NUMBERS.get(value, value) if isinstance(value, str) else value


# Looked at once, while nothing else runs: it can be read only by setting it for a moment.
_UMASK = os.umask(0o077)
os.umask(_UMASK)
