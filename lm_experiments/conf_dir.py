"""Where the configuration files are."""

from __future__ import annotations

from pathlib import Path


def conf_dir() -> Path:
    """Return the folder ``conf``: inside an installed package, at the top of a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"
