"""Which version of this package a machine has.

Sent to other machines as it stands, so it imports nothing of the package.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

PACKAGE = "lm_experiments"


def source_hash() -> str | None:
    """Return the SHA-256 of the package's source files, None where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def version_of(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def inspect_machine(shared: str) -> dict[str, Any]:
    """Return the package's ``code_hash`` and ``version``, and whether a file is ``shared``.

    Args:
        shared: a file that exists wherever the sweep's folder is mounted.
    """
    return {
        "code_hash": source_hash(),
        "version": f"{PACKAGE} {version_of(PACKAGE)}, torch {version_of('torch')}",
        "shared": Path(shared).exists(),
    }
