"""What the readers of files have in common: which are hidden, and a separator that cuts nothing."""

from __future__ import annotations

import logging
from pathlib import Path

logger = logging.getLogger(__name__)


def is_hidden(path: Path) -> bool:
    """Whether a part of a relative path begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def warn_uncut(separator: str, where: object) -> None:
    """Say that a separator cuts nothing."""
    logger.warning(
        "data.separator=%r occurs nowhere in %s, so that each file is one document; type "
        "data.separator= as it stands there, or null",
        separator,
        where,
    )
