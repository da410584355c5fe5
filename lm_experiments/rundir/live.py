"""What can be seen of a run from its files alone, without disturbing the process that trains it."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from lm_experiments.rundir.names import CONFIG

_MAX_STEPS = re.compile(r"^trainer:\n(?:[ #].*\n)*?  max_steps: (\d+)$", re.MULTILINE)


def is_held(lock: Path) -> bool:
    """Return whether a process holds the run's lock, without changing the file.

    A shared lock is asked for, so that two who look do not take each other for a training.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def max_steps_of(directory: Path) -> int | None:
    """Return the run's budget; a thousand configurations are too many for a YAML parser."""
    try:
        found = _MAX_STEPS.search((directory / CONFIG).read_text(encoding="utf-8"))
    except OSError:
        return None
    return int(found[1]) if found else None
