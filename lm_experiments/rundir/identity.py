"""``identity.json``: the hashes of what determines a run's result."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path

from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import read_object, write_json
from lm_experiments.rundir.names import IDENTITY, damaged
from lm_experiments.rundir.parse import build


@dataclass(frozen=True)
class Identity:
    """SHA-256 of the configuration, as far as it determines the result, and of the corpus."""

    config_hash: str
    data_hash: str


def read_identity(run_dir: Path) -> Identity:
    """Return the identity of a planned run; `InputError` where it is missing or damaged."""
    path = run_dir / IDENTITY
    try:
        return build(Identity, read_object(path), "")
    except FileNotFoundError:
        raise InputError(f"{run_dir} is not planned: it has no {IDENTITY}.") from None
    except InputError as error:
        raise damaged(path, str(error).rstrip(".")) from None


def write_identity(run_dir: Path, identity: Identity) -> None:
    """Write a run's identity, unless it is there."""
    with contextlib.suppress(InputError):
        if read_identity(run_dir) == identity:
            return
    write_json(run_dir / IDENTITY, dataclasses.asdict(identity))
