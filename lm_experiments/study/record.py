"""``sweep.json``: which runs a sweep consists of, in the order they were declared."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from lm_experiments.training.config import load_config, plain_values
from lm_experiments.training.files import remove_unfinished, write_json
from lm_experiments.training.typed import ConfigError

from .identity import NOT_IDENTITY
from .jobs import Job, quoted
from .plan import PlannedRun, run_status

FILE = "sweep.json"
# What may be added to a study that has started: seeds, and what tuning found.
EXTENDABLE = ("seeds", "tune")
SHOWN_DIFFERENCES = 3


@dataclass(frozen=True)
class Planned:
    """A job and the run it leads to."""

    job: Job
    run: PlannedRun

    @property
    def words(self) -> list[str]:
        """The overrides by which a launcher's job finds the run's directory."""
        return [*self.job.overrides, f"directory={quoted(str(self.run.directory))}"]


def first_of_each(planned: Sequence[Planned]) -> list[Planned]:
    """Return each run once: jobs that differ in nothing that counts lead to the same run."""
    return list({item.run.config_hash: item for item in reversed(planned)}.values())[::-1]


def record_sweep(
    folder: Path,
    planned: Sequence[Planned],
    axes: Sequence[str],
    study: Mapping[str, Any] | None = None,
) -> None:
    """Add the planned runs to the folder's ``sweep.json``; those it knows keep their place.

    Raises:
        ConfigError: where the folder holds another study, or an arm that was configured otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{FILE}.lock"):
        remove_unfinished(folder, f".{FILE}.*")
        known = read_sweep(folder)
        _check_study(folder, known.get("study"), study)
        rows = {_place(row): row for row in known["runs"]}
        for item in planned:
            row = _row(item)
            there = rows.setdefault(_place(row), row)
            if there["config_hash"] != row["config_hash"]:
                _check_replaceable(folder, there, item.run)
                there.update(row)
        known |= {"name": folder.name, "command": _command(), "runs": list(rows.values())}
        known["axes"] = list(dict.fromkeys([*known["axes"], *axes]))
        known["study"] = _extended(known.get("study"), study)
        write_json(folder / FILE, known)


def read_sweep(folder: Path) -> dict[str, Any]:
    """Return the folder's ``sweep.json``, or one that holds nothing yet."""
    path = folder / FILE
    if not path.exists():
        return {"name": folder.name, "command": "", "axes": [], "study": None, "runs": []}
    try:
        known = json.loads(path.read_bytes())
        for row in known["runs"]:
            _place(row), row["directory"], row["config_hash"]
        return {"axes": [], **known}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ConfigError(
            f"{path} is damaged; remove it, and the same command writes it again. The runs beside "
            "it stay."
        ) from None


def _row(item: Planned) -> dict[str, Any]:
    return {
        "arm": item.run.config.arm,
        "overrides": item.run.config.arm_overrides,
        "seed": item.run.config.seed,
        "role": item.job.role,
        "setting": dict(item.job.setting),
        "directory": item.run.directory.name,
        "config_hash": item.run.config_hash,
    }


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what makes a row another row: one arm, seed and role has one run."""
    setting = tuple(sorted(row.get("setting", {}).items()))
    return row["arm"], row["seed"], row.get("role", "report"), setting


def _extended(
    there: Mapping[str, Any] | None, study: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return the study with the seeds of both: seeds are added, and none is forgotten."""
    if study is None:
        return dict(there) if there else None
    seeds = [*(there or {}).get("seeds", []), *study["seeds"]]
    return {**study, "seeds": list(dict.fromkeys(seeds))}


def _check_study(
    folder: Path, there: Mapping[str, Any] | None, study: Mapping[str, Any] | None
) -> None:
    if there is None or study is None:
        return
    changed = [
        f"{key}: {there.get(key)!r} there, {study[key]!r} now"
        for key in study
        if key not in EXTENDABLE and there.get(key) != study[key]
    ]
    if changed:
        raise ConfigError(
            f"{folder} holds this study as it was before it was edited ({'; '.join(changed)}); "
            "put it back, or type name=... to start it anew beside."
        )


def _check_replaceable(folder: Path, there: Mapping[str, Any], run: PlannedRun) -> None:
    """Let a run that never finished be replaced; refuse to mix two configurations of one arm."""
    directory = folder / there["directory"]
    if run_status(directory) != "done":
        return
    raise ConfigError(
        f"{folder} holds arm {run.config.arm!r}, seed {run.config.seed}, trained otherwise "
        f"({_differences(directory, run)}); type name=... to put this into another folder."
    )


def _differences(directory: Path, run: PlannedRun) -> str:
    old = _flat(plain_values(load_config(directory)))
    new = _flat(plain_values(run.config))
    skipped = {
        f"{part}.{key}" if part else key for part, keys in NOT_IDENTITY.items() for key in keys
    }
    changed = [
        f"{key}: {old.get(key)!r} there, {new.get(key)!r} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and key not in skipped and key.split(".")[0] not in skipped
    ]
    if not changed:
        return "its corpus or its code has changed"
    return "; ".join(changed[:SHOWN_DIFFERENCES])


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _command() -> str:
    return shlex.join(["python", *sys.argv])
