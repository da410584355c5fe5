"""The id of a run's mirror in W&B, which stays the run's own."""

from __future__ import annotations

import logging
import secrets
import string
from pathlib import Path

from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.training.wandb.offline import (
    ID_FILE,
    UNSENT_FILE,
    logs_of,
    read_id,
    synced_mark,
)

log = logging.getLogger(__name__)


def run_id(home: Path, files: Path) -> str:
    """Return the id of a folder's W&B run, written to the folder before the run starts.

    The file holds the id, the folder it was made for, and where the client's files lie. A folder
    that was moved keeps its id; a copy of one that is still there gets an id of its own.

    Args:
        home: the folder of a run, or of a sweep.
        files: the folder that the client is told to write into; usually the same.
    """
    here = home.resolve()
    known, made_for, _ = read_id(home)
    # The id belongs to another folder, and not to this one under an earlier name.
    if known and made_for not in (here, None) and _belongs(known, made_for, here):
        log.warning("%s is a copy of %s; it is logged to a W&B run of its own.", home, made_for)
        # The logs that were copied along are not uploaded from here too.
        forget_run(home)
        known = ""
    alphabet = string.ascii_lowercase + string.digits
    known = known or "".join(secrets.choice(alphabet) for _ in range(8))
    elsewhere = "" if files == home else f"{files.resolve()}\n"
    text = f"{known}\n{here}\n{elsewhere}"
    if not (home / ID_FILE).is_file() or (home / ID_FILE).read_text(encoding="utf-8") != text:
        write_atomically(home / ID_FILE, text)
    return known


def forget_run(home: Path) -> None:
    """Forget the W&B run of a folder: the next one gets a new id, and no log is left to send."""
    for log_file in logs_of(home, online=True):
        synced_mark(log_file).touch()
    for name in (UNSENT_FILE, ID_FILE):
        (home / name).unlink(missing_ok=True)


def _belongs(known: str, made_for: Path, here: Path) -> bool:
    return read_id(made_for)[0] == known and not made_for.samefile(here)
