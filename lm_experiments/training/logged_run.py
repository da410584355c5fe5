"""What loggers are told about a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LoggedRun:
    """A run's directory, its place in the sweep, and its resolved configuration."""

    directory: Path
    sweep: str
    arm: str
    seed: int
    config: Mapping[str, Any]
