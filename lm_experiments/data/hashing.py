"""Seeds and hashes derived from named parts, so that every random draw has its own key."""

from __future__ import annotations

import hashlib
import json

import numpy as np


def keyed_generator(*parts: int | str) -> np.random.Generator:
    """Return a PCG64 generator which depends on `parts` alone, the same in every process."""
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))


def hash_of(value: object) -> str:
    """Return the sha256 in hex of a JSON value; the order of its keys does not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
