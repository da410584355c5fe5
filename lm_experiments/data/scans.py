"""Facts about files that cost a full read, remembered as long as the files stay as they are."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lm_experiments.data.hashing import hash_of
from lm_experiments.errors import InputError

FOLDER = "scans"
CHUNK_BYTES = 1 << 24

Facts = dict[str, Any]


def stamp(path: Path) -> tuple[str, int, int]:
    """Return where a file lies, its size and its time: while these stay, so does what is in it."""
    stat = path.stat()
    return str(path.resolve()), stat.st_size, stat.st_mtime_ns


def remembered(path: Path, kind: str, scan: Callable[[Path], Facts], cache_dir: Path) -> Facts:
    """Return what `scan` tells of a file, from the cache where the file is as it was.

    `kind` names the scan. Raises `InputError` where the file cannot be read, or changes meanwhile.
    """
    try:
        before = stamp(path)
        note = cache_dir / FOLDER / f"{hash_of([kind, *before])[:24]}.json"
        known = _known(note)
        if known is not None:
            return known
        facts = scan(path)
        if stamp(path) != before:
            raise InputError(f"{path} changed while it was read; start again when it is complete")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); make it readable or change data.path"
        ) from error
    note.parent.mkdir(parents=True, exist_ok=True)
    partial = note.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(facts), encoding="utf-8")
    partial.replace(note)
    return facts


def content_sha256(path: Path) -> Facts:
    """Return the sha256 in hex of a file, under "sha256"."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return {"sha256": digest.hexdigest()}


def _known(note: Path) -> Facts | None:
    try:
        facts = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None
