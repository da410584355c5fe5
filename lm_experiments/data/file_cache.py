"""Cache of facts about files that need a full read, valid while the files do not change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lm_experiments.data.hashing import hash_of
from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import write_atomically

FOLDER = "scans"
CHUNK_BYTES = 1 << 24

Facts = dict[str, Any]
Stamp = tuple[str, int, int, int]


def stamp(path: Path) -> Stamp:
    """Return a file's path, size, modification time and inode; while equal, it has not changed."""
    stat = path.stat()
    return str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino


def cached_scan(path: Path, kind: str, scan: Callable[[Path], Facts], cache_dir: Path) -> Facts:
    """Return `scan(path)`, from the cache if the file has not changed.

    `kind` names the scan. Raises `InputError` if the file cannot be read, or changes meanwhile.
    """
    try:
        before = stamp(path)
        entry = cache_dir / FOLDER / f"{hash_of([kind, *before])[:24]}.json"
        cached = _read_entry(entry)
        if cached is not None:
            return cached
        facts = scan(path)
        if stamp(path) != before:
            raise InputError(f"{path} changed while it was read; start again when it is complete")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); make it readable or change data.path"
        ) from error
    # The cache may be another user's, read-only or full: then the file is read again next time.
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(entry, json.dumps(facts))
    return facts


def content_sha256(path: Path) -> Facts:
    """Return the sha256 in hex of a file, under "sha256"."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return {"sha256": digest.hexdigest()}


def _read_entry(entry: Path) -> Facts | None:
    try:
        facts = json.loads(entry.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None
