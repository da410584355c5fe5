"""Read a sweep's run directories into plain records: what was planned and what became of it."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.report.declared import REPORT, ROLES, TUNE, Study, declared_study

# A run that ended in one of these has no loss worth averaging.
BROKEN_OUTCOMES = frozenset({"diverged", "non-finite", "failed-at-init"})
RESULT_STATUSES = ("done", "failed", "interrupted")

# Attribute of `Run` -> where `result.json` keeps the number.
_NUMBERS: dict[str, tuple[str, ...]] = {
    "val_loss": ("val_loss",),
    "val_tokens": ("val_tokens",),
    "bits_per_byte": ("bits_per_byte",),
    "steps": ("steps",),
    "tokens": ("tokens",),
    "parameters": ("parameters", "total"),
    "non_embedding": ("parameters", "non_embedding"),
    "flops_per_token": ("flops_per_token",),
    "tokens_per_second": ("tokens_per_second",),
    "learning_rate": ("learning_rate",),
    "threads": ("threads",),
    "initial_loss": ("initial_loss",),
    "eval_context": ("eval_context",),
    "outcome_step": ("outcome_step",),
}
_TEXTS = (
    "outcome",
    "data_hash",
    "commit",
    "code_hash",
    "config_hash",
    "tokenizer_hash",
    "device",
)
SPECIAL_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True)
class Run:
    """One training: an arm with a seed, its directory and what `result.json` says of it.

    `status` is done, failed or interrupted as recorded, "unfinished" when the run has begun but
    has no result, and "waiting" when it has not begun. Losses are in nats per token. `role` is
    "report", "tuned" (at the arm's own best `setting`) or "tune" (a trial).
    """

    arm: str
    seed: int
    directory: Path
    status: str
    overrides: tuple[str, ...] = ()
    outcome: str | None = None
    error: str | None = None
    val_loss: float | None = None
    val_tokens: float | None = None
    bits_per_byte: float | None = None
    steps: float | None = None
    tokens: float | None = None
    parameters: float | None = None
    non_embedding: float | None = None
    flops_per_token: float | None = None
    tokens_per_second: float | None = None
    learning_rate: float | None = None
    threads: float | None = None
    initial_loss: float | None = None
    eval_context: float | None = None
    outcome_step: float | None = None
    data_hash: str | None = None
    config_hash: str | None = None
    tokenizer_hash: str | None = None
    commit: str | None = None
    code_hash: str | None = None
    device: str | None = None
    role: str = REPORT
    setting: Mapping[str, Any] = field(default_factory=dict, hash=False)
    result: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def verdict(self) -> str:
        """One word for the outcome column: ok, an outcome, FAILED, or the status."""
        if self.status == "failed":
            return "FAILED"
        if self.status != "done":
            return self.status
        if self.outcome in BROKEN_OUTCOMES:
            return str(self.outcome)
        if self.val_loss is None or not math.isfinite(self.val_loss):
            return "non-finite"
        return self.outcome or "ok"

    @property
    def finished(self) -> bool:
        """Whether the run came to an end of its own, good or bad."""
        return self.status in ("done", "failed")

    @property
    def usable(self) -> bool:
        """Whether the final loss may enter a mean: trained to the end, and finite."""
        return self.status == "done" and self.verdict not in BROKEN_OUTCOMES

    @property
    def failing(self) -> bool:
        """Whether the run ended without a loss worth averaging, which counts against its arm."""
        return self.finished and not self.usable

    def value(self, metric: str) -> float | None:
        """The final value of "val_loss" or "bits_per_byte", None where it may not be averaged."""
        number: float | None = getattr(self, metric) if self.usable else None
        return number if number is not None and math.isfinite(number) else None


@dataclass(frozen=True)
class Sweep:
    """The runs of one sweep in declared order; `extra` are run directories outside the plan.

    `runs` leaves out the trials of tuning, which are in `trials`. `study` is None for a sweep that
    declares nothing; `pending` are a study's (arm, seed, role) that the plan does not list yet.
    """

    name: str
    directory: Path
    arms: tuple[str, ...]
    axes: tuple[str, ...]
    runs: tuple[Run, ...]
    extra: tuple[Path, ...] = field(default=())
    trials: tuple[Run, ...] = field(default=())
    study: Study | None = None
    command: str = ""

    @property
    def pending(self) -> list[tuple[str, int, str]]:
        """The (arm, seed, role) that a study declares and its plan does not list yet."""
        listed = {(run.arm, run.seed, run.role) for run in self.runs}
        return [cell for cell in (self.study.cells if self.study else ()) if cell not in listed]

    @property
    def complete(self) -> bool:
        """Whether every run that the table is made of came to an end of its own."""
        return not self.pending and all(run.finished for run in self.runs)

    def of_arm(self, arm: str) -> tuple[Run, ...]:
        """The runs of one arm, in declared order."""
        return tuple(run for run in self.runs if run.arm == arm)


def collect(sweep_dir: str | Path) -> Sweep:
    """Join the planned runs of `sweep.json`, where there is one, with the directories found.

    Raises `InputError` when the path does not exist, holds no runs, or holds a damaged file.
    """
    root = Path(sweep_dir)
    if not root.is_dir():
        raise InputError(f"There is no folder {str(root)!r}; {_nearby(root)}.")
    found = _run_directories(root)
    plan_file = root / "sweep.json"
    if plan_file.is_file():
        return _planned(root, _read_object(plan_file), found)
    if not found:
        raise InputError(_no_runs(root))
    runs = sorted((_unplanned(path) for path in found), key=lambda run: (run.arm, run.seed))
    return _sweep(root.resolve().name, root, (), runs, ())


def read_metrics(run_dir: str | Path, key: str = "") -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl` in written order, only those holding `key` where it is given.

    Rows that a kill cut short are left out, wherever a resumed run has put them; no file gives no
    rows. The strings "nan", "inf" and "-inf" come back as floats.
    """
    path = Path(run_dir) / "metrics.jsonl"
    if not path.is_file():
        return []
    marker = f'"{key}"'.encode()
    lines = path.read_bytes().splitlines()
    rows = (_metrics_row(line) for line in lines if not key or marker in line)
    return [row for row in rows if row is not None]


def _metrics_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    return {k: SPECIAL_NUMBERS.get(v, v) if isinstance(v, str) else v for k, v in row.items()}


def _run_directories(root: Path) -> list[Path]:
    children = sorted(path for path in root.iterdir() if path.is_dir())
    return [p for p in children if (p / "config.yaml").is_file() or (p / "result.json").is_file()]


def _planned(root: Path, plan: dict[str, Any], found: Sequence[Path]) -> Sweep:
    try:
        runs = [_planned_run(root, entry) for entry in plan["runs"]]
        study = declared_study(plan["study"]) if plan.get("study") else None
        name, axes = str(plan.get("name", root.name)), tuple(map(str, plan.get("axes") or ()))
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(_damaged(root / "sweep.json", f"it lacks or misuses {error}")) from error
    if not runs:
        raise InputError(f"The plan {str(root / 'sweep.json')!r} lists no runs; start the sweep.")
    planned = {run.directory.name for run in runs}
    extra = [path for path in found if path.name not in planned]
    return _sweep(name, root, axes, runs, extra, study, str(plan.get("command") or ""))


def _sweep(
    name: str,
    root: Path,
    axes: tuple[str, ...],
    runs: Sequence[Run],
    extra: Iterable[Path],
    study: Study | None = None,
    command: str = "",
) -> Sweep:
    reported = tuple(run for run in runs if run.role != TUNE)
    trials = tuple(run for run in runs if run.role == TUNE)
    declared = study.arms if study else ()
    arms = tuple(dict.fromkeys([*declared, *(run.arm for run in reported)]))
    return Sweep(name, root, arms, axes, reported, tuple(extra), trials, study, command)


def _planned_run(root: Path, entry: dict[str, Any]) -> Run:
    directory = root / str(entry["directory"])
    role = str(entry.get("role") or REPORT)
    if role not in ROLES:
        raise ValueError(f"the role {role!r}, which is none of {', '.join(ROLES)}")
    run = _run(
        str(entry["arm"]),
        int(entry["seed"]),
        directory,
        tuple(map(str, entry.get("overrides") or ())),
        _read_result(directory),
    )
    planned_hash = str(entry["config_hash"]) if entry.get("config_hash") else None
    return replace(
        run,
        role=role,
        setting=dict(entry.get("setting") or {}),
        config_hash=run.config_hash or planned_hash,
    )


def _unplanned(directory: Path) -> Run:
    result = _read_result(directory)
    source = result if result and {"arm", "seed"} <= result.keys() else _read_config(directory)
    try:
        return _run(str(source["arm"]), int(source["seed"]), directory, (), result)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"Neither file in {str(directory)!r} names its arm and seed.") from error


def _run(
    arm: str, seed: int, directory: Path, overrides: tuple[str, ...], result: dict[str, Any] | None
) -> Run:
    if result is None:
        status = "unfinished" if (directory / "metrics.jsonl").is_file() else "waiting"
        return Run(arm, seed, directory, status, overrides)
    fields = {name: _number(result, keys, directory) for name, keys in _NUMBERS.items()}
    texts = {name: None if result.get(name) is None else str(result[name]) for name in _TEXTS}
    if texts["commit"] and result.get("dirty"):
        texts["commit"] += "+dirty"
    error = _error(result.get("error"))
    known: dict[str, Any] = {**fields, **texts, "error": error, "result": result}
    return Run(arm, seed, directory, result["status"], overrides, **known)


def _number(result: dict[str, Any], keys: tuple[str, ...], directory: Path) -> float | None:
    value: Any = result
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, str):
        value = SPECIAL_NUMBERS.get(value, value)
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    reason = f"{'.'.join(keys)} is {value!r}, which is not a number"
    raise InputError(_damaged(directory / "result.json", reason))


def _error(error: Any) -> str | None:
    if not error:
        return None
    if not isinstance(error, dict):
        return " ".join(str(error).split())
    parts = (str(error.get(key) or "").strip() for key in ("type", "message"))
    return " ".join(": ".join(part for part in parts if part).split())


def _read_result(directory: Path) -> dict[str, Any] | None:
    path = directory / "result.json"
    if not path.is_file():
        return None
    result = _read_object(path)
    if result.get("status") not in RESULT_STATUSES:
        reason = f"status is {result.get('status')!r}, not one of {', '.join(RESULT_STATUSES)}"
        raise InputError(_damaged(path, reason))
    return result


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(_damaged(path, "it is not valid JSON")) from error
    if not isinstance(content, dict):
        raise InputError(_damaged(path, f"it holds a {type(content).__name__}, not an object"))
    return content


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / "config.yaml"
    # Imported here because a planned sweep needs no YAML.
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(path.read_bytes(), Loader=loader)
    except (OSError, yaml.YAMLError) as error:
        raise InputError(_damaged(path, "it is not readable YAML")) from error
    return content if isinstance(content, dict) else {}


def _damaged(path: Path, reason: str) -> str:
    return f"The file {str(path)!r} is damaged ({reason}); delete it and run the sweep again."


def _nearby(root: Path) -> str:
    parent = root.parent
    names = sorted(p.name for p in parent.iterdir() if p.is_dir()) if parent.is_dir() else []
    near = difflib.get_close_matches(root.name, names, n=1, cutoff=0.4)
    if near:
        return f"did you mean {str(parent / near[0])!r}"
    return "give the folder of a sweep, which is runs/NAME for a sweep started with name=NAME"


def _no_runs(root: Path) -> str:
    if (root / "config.yaml").is_file() or (root / "result.json").is_file():
        return f"{str(root)!r} is a single run; give the folder of its sweep, {str(root.parent)!r}."
    inside = [path for path in sorted(root.iterdir()) if path.is_dir()]
    sweeps = [p for p in inside if (p / "sweep.json").is_file() or _run_directories(p)]
    if sweeps:
        return f"{str(root)!r} holds sweeps, not runs; give one, such as {str(sweeps[0])!r}."
    return (
        f"{str(root)!r} holds no runs, which are folders with a config.yaml and, once finished, "
        "a result.json; give the folder of a sweep, such as runs/NAME."
    )
