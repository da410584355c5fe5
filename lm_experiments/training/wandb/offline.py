"""What a sweep has kept on this disk for W&B, and the commands that upload or show it.

Reads folders only: importing this module costs nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

# The run's id in W&B, and the directory it belongs to.
ID_FILE = "wandb_id"
# In the directory of a run whose server went away before it had everything.
UNSENT_FILE = "wandb_unsent"

_OFFLINE = "wandb/offline-run-*"
_ONLINE = "wandb/run-*"


def offline_summary(run_dirs: Sequence[Path]) -> list[str]:
    """Return the lines to print once at the end of a sweep, empty when nothing is kept.

    A run counts when its directory holds a W&B transaction log, written offline or not sent to
    its end, that `wandb sync` has not marked as uploaded.
    """
    kept = {run_dir: logs for run_dir in run_dirs if (logs := _unsynced(run_dir))}
    if not kept:
        return []
    runs = "1 run is" if len(kept) == 1 else f"{len(kept)} runs are"
    return [
        f"W&B: {runs} kept offline. To upload:",
        f"  wandb sync {_arguments(kept)}",
        "To look at one in the terminal:",
        f"  wandb leet {shlex.quote(str(next(iter(kept)) / 'wandb'))}",
    ]


def _unsynced(run_dir: Path) -> list[Path]:
    patterns = [_OFFLINE, *([_ONLINE] if (run_dir / UNSENT_FILE).exists() else [])]
    logs = [log for pattern in patterns for log in sorted(run_dir.glob(f"{pattern}/*.wandb"))]
    return [log.parent for log in logs if not synced_mark(log).exists()]


def synced_mark(log: Path) -> Path:
    """Return the file by whose presence `wandb sync` passes over a log."""
    return log.with_name(f"{log.name}.synced")


def _arguments(kept: dict[Path, list[Path]]) -> str:
    """One glob where every run has the same parent (a sweep), otherwise one for each run.

    Logs that were not sent to their end lie among others that were, so each is named; the client
    passes over them unless it is told not to.
    """
    parents = {run_dir.parent for run_dir in kept}
    offline = [run_dir for run_dir in kept if not (run_dir / UNSENT_FILE).exists()]
    if len(offline) == len(kept) > 1 and len(parents) == 1:
        return f"{shlex.quote(str(parents.pop()))}/*/{_OFFLINE}"
    named = [
        f"{shlex.quote(str(run_dir))}/{_OFFLINE}"
        if run_dir in offline
        else shlex.join(map(str, logs))
        for run_dir, logs in kept.items()
    ]
    return " ".join(named if len(offline) == len(kept) else ["--no-skip-online", *named])
