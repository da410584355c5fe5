"""What a node of a cluster has of us. Sent there as it stands, so it may import nothing of ours."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

PACKAGE = "lm_experiments"


def look(shared: str) -> dict[str, Any]:
    """Return what is on this machine.

    Args:
        shared: a file that is seen wherever the sweep's folder is.

    Returns:
        ``code_hash`` (None without the package), ``version`` (of the package and of torch), and
        whether the folder is ``shared``.
    """
    return {
        "code_hash": installed_hash(),
        "version": f"{PACKAGE} {_version(PACKAGE)}, torch {_version('torch')}",
        "shared": Path(shared).exists(),
    }


def installed_hash() -> str | None:
    """Return the SHA-256 of the package's source files, without importing them."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
