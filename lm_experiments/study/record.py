"""``sweep.json``: which runs a sweep consists of, in the order they were declared."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from lm_experiments.training.files import write_json

from .plan import PlannedRun

FILE = "sweep.json"


def record_sweep(folder: Path, runs: Sequence[PlannedRun], axes: Sequence[str]) -> None:
    """Add the planned runs to the folder's ``sweep.json``; those it knows keep their place."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{FILE}.lock"):
        known = _known(folder / FILE)
        rows = {row["directory"]: row for row in known["runs"]}
        for run in runs:
            rows.setdefault(run.directory.name, _row(run))
        known |= {"name": folder.name, "command": _command(), "runs": list(rows.values())}
        known["axes"] = list(dict.fromkeys([*known["axes"], *axes]))
        write_json(folder / FILE, known)


def _known(path: Path) -> dict[str, Any]:
    if path.exists():
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return known
    return {"name": "", "command": "", "axes": [], "runs": []}


def _row(run: PlannedRun) -> dict[str, Any]:
    return {
        "arm": run.config.arm,
        "overrides": run.config.arm_overrides,
        "seed": run.config.seed,
        "directory": run.directory.name,
        "config_hash": run.config_hash,
    }


def _command() -> str:
    return shlex.join(["python", *sys.argv])
