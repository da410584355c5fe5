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

# In the folder of a sweep: what belongs to the run that sums it up, apart from its runs.
SUMMARY_HOME = ".wandb"
# What precedes the name of a sweep that W&B has: wandb:ENTITY/PROJECT/GROUP.
PREFIX = "wandb:"

_OFFLINE = "wandb/offline-run-*"


def offline_summary(run_dirs: Sequence[Path], sweep: Path | None = None) -> list[str]:
    """Return the lines to print once at the end of a sweep, empty when nothing is kept.

    A run counts when its directory holds a W&B transaction log, written offline or not sent to
    its end, that `wandb sync` has not marked as uploaded. The folder of the ``sweep`` may hold one
    of the run that sums it up.
    """
    kept = {run_dir: logs for run_dir in run_dirs if (logs := _unsynced(run_dir))}
    homes = [sweep / SUMMARY_HOME] if sweep else []
    summary = {home: logs for home in homes if (logs := _unsynced(home))}
    if not kept and not summary:
        return []
    runs = "1 run is" if len(kept) == 1 else f"{len(kept)} runs are"
    shown = read_id(next(iter(kept or summary)))[2] / "wandb"
    return [
        f"W&B: {runs if kept else 'the summary is'} kept offline. To upload:",
        f"  wandb sync {' '.join(_arguments(logs) for logs in (kept, summary) if logs)}",
        "To look at one in the terminal:",
        f"  wandb leet {shlex.quote(str(shown))}",
    ]


def logs_of(home: Path, online: bool) -> list[Path]:
    """Return the transaction logs of a folder's W&B run, in order; with ``online``, all of them.

    Without, they are those that were written offline.
    """
    known, _, folder = read_id(home)
    # Elsewhere lie the logs of other runs, too.
    end = "*" if folder == home else f"*-{known}"
    kinds = ("offline-run-", "run-") if online else ("offline-run-",)
    return [log for kind in kinds for log in sorted(folder.glob(f"wandb/{kind}{end}/*.wandb"))]


def read_id(home: Path) -> tuple[str, Path | None, Path]:
    """Return the id in a folder, empty if none, the folder it was made for, and the client's.

    In the last lie the client's files; it is the folder itself unless WANDB_DIR named another.
    """
    try:
        lines = (home / ID_FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    known, made_for, files = [*lines, "", "", ""][:3]
    return known.strip(), Path(made_for) if made_for else None, Path(files) if files else home


def synced_mark(log: Path) -> Path:
    """Return the file by whose presence `wandb sync` passes over a log."""
    return log.with_name(f"{log.name}.synced")


def _unsynced(home: Path) -> list[Path]:
    logs = logs_of(home, online=(home / UNSENT_FILE).exists())
    return [log.parent for log in logs if not synced_mark(log).exists()]


def _arguments(kept: dict[Path, list[Path]]) -> str:
    """One glob where every run has the same parent (a sweep), otherwise one for each run.

    Logs that were not sent to their end lie among others that were, so each is named; the client
    passes over them unless it is told not to.
    """
    parents = {run_dir.parent for run_dir in kept}
    offline = [run_dir for run_dir in kept if not (run_dir / UNSENT_FILE).exists()]
    inside = [run_dir for run_dir in offline if read_id(run_dir)[2] == run_dir]
    if len(inside) == len(kept) > 1 and len(parents) == 1:
        return f"{shlex.quote(str(parents.pop()))}/*/{_OFFLINE}"
    named = [
        f"{shlex.quote(str(run_dir))}/{_OFFLINE}"
        if run_dir in inside
        else shlex.join(map(str, logs))
        for run_dir, logs in kept.items()
    ]
    return " ".join(named if len(offline) == len(kept) else ["--no-skip-online", *named])
