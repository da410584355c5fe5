"""A run to be launched: a directory that is ready to be trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """A run directory to be trained.

    Attributes:
        directory: with its ``config.yaml`` and ``identity.json``.
        code_paths: Python files of the user's that register components.
        devices: how many processes train the run, one for each device.
        is_beside: whether it is trained beside others, so that a terminal shows all in one line.
    """

    directory: Path
    code_paths: tuple[str, ...] = ()
    devices: int = 1
    is_beside: bool = False


@dataclass(frozen=True)
class Policy:
    """What happens when a run has ended.

    Attributes:
        retries: how often a failed run is tried again, from its newest checkpoint.
        stop_on_failure: whether the first failed run ends the sweep.
        standing: returns how the sweep of a run directory stands, in one line.
    """

    retries: int
    stop_on_failure: bool
    standing: Callable[[Path], str]
