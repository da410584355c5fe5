"""``identity.json``: what determines a run's result, and its hashes."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import read_object, write_json
from lm_experiments.rundir.names import IDENTITY, damaged
from lm_experiments.rundir.parse import build


@dataclass(frozen=True)
class Identity:
    """What determines a run's result.

    Attributes:
        config_hash: SHA-256 of ``values``.
        data_hash: SHA-256 of the corpus.
        values: everything that determines the result, by dotted key.
    """

    config_hash: str
    data_hash: str
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def hashes(self) -> dict[str, Any]:
        """Both hashes, as a result keeps them."""
        return {"config_hash": self.config_hash, "data_hash": self.data_hash}


def read_identity(run_dir: Path) -> Identity:
    """Return the identity of a planned run; `InputError` where it is missing or damaged."""
    path = run_dir / IDENTITY
    try:
        return build(Identity, read_object(path), "")
    except FileNotFoundError:
        raise InputError(f"{run_dir} is not planned: it has no {IDENTITY}.") from None
    except InputError as error:
        raise damaged(path, str(error).rstrip(".")) from None


def read_values(run_dir: Path) -> dict[str, Any]:
    """Return the values of a run's identity; nothing of a run that has none yet."""
    return read_identity(run_dir).values if (run_dir / IDENTITY).exists() else {}


def write_identity(run_dir: Path, identity: Identity) -> None:
    """Write a run's identity, unless it is there."""
    with contextlib.suppress(InputError):
        if read_identity(run_dir) == identity:
            return
    write_json(run_dir / IDENTITY, dataclasses.asdict(identity))
