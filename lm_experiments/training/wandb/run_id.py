"""The id of a run's mirror in W&B, which stays the run's own."""

from __future__ import annotations

import logging
import secrets
import string
from pathlib import Path

from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.training.wandb.offline import ID_FILE, UNSENT_FILE, synced_mark

log = logging.getLogger(__name__)


def run_id(run_dir: Path) -> str:
    """Return the run's W&B id, written to its directory before the run starts.

    The file holds the id and the directory it was made for. A directory that was moved keeps its
    id; a copy of one that is still there gets an id of its own.
    """
    here = run_dir.resolve()
    known, home = _stored(run_dir)
    if known and home == here:
        return known
    # The id belongs to another directory, and not to this one under an earlier name.
    if known and home is not None and _stored(home)[0] == known and not home.samefile(here):
        log.warning("%s is a copy of %s; it is logged to a W&B run of its own.", run_dir, home)
        # The logs that were copied along are not uploaded from here too.
        forget_run(run_dir)
        known = ""
    alphabet = string.ascii_lowercase + string.digits
    known = known or "".join(secrets.choice(alphabet) for _ in range(8))
    write_atomically(run_dir / ID_FILE, f"{known}\n{here}\n")
    return known


def forget_run(run_dir: Path) -> None:
    """Forget the W&B run of a directory: the next one gets a new id, and no log is left to send."""
    for log_file in run_dir.glob("wandb/*run-*/*.wandb"):
        synced_mark(log_file).touch()
    for name in (UNSENT_FILE, ID_FILE):
        (run_dir / name).unlink(missing_ok=True)


def _stored(run_dir: Path) -> tuple[str, Path | None]:
    """Return the id in a directory, empty if none, and the directory it was made for."""
    try:
        lines = (run_dir / ID_FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return "", None
    known, home = [*lines, "", ""][:2]
    return known.strip(), Path(home) if home else None
