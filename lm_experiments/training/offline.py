"""What a sweep has kept offline for W&B, and the commands that upload or show it.

Reads folders only: importing this module costs nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

_OFFLINE = "wandb/offline-run-*"


def offline_summary(run_dirs: Sequence[Path]) -> list[str]:
    """Return the lines to print once at the end of a sweep, empty when nothing is offline.

    A run counts when its directory holds a W&B transaction log that `wandb sync` has not marked
    as uploaded.
    """
    kept = [run_dir for run_dir in run_dirs if _unsynced(run_dir)]
    if not kept:
        return []
    runs = "1 run is" if len(kept) == 1 else f"{len(kept)} runs are"
    return [
        f"W&B: {runs} kept offline. To upload:",
        f"  wandb sync {_arguments(kept)}",
        "To look at one in the terminal:",
        f"  wandb leet {shlex.quote(str(kept[0] / 'wandb'))}",
    ]


def _unsynced(run_dir: Path) -> bool:
    logs = run_dir.glob(f"{_OFFLINE}/*.wandb")
    return any(not log.with_name(f"{log.name}.synced").exists() for log in logs)


def _arguments(run_dirs: Sequence[Path]) -> str:
    """One glob where every run has the same parent (a sweep), otherwise one for each run."""
    parents = {run_dir.parent for run_dir in run_dirs}
    if len(run_dirs) > 1 and len(parents) == 1:
        return f"{shlex.quote(str(parents.pop()))}/*/{_OFFLINE}"
    return " ".join(f"{shlex.quote(str(run_dir))}/{_OFFLINE}" for run_dir in run_dirs)
