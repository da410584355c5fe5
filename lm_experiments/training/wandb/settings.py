"""What can be set about the mirror of a run in W&B."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from lm_experiments.errors import InputError

_MODES = ("auto", "online", "offline", "disabled")
_PROJECT_LIMIT = 128
TAG_LIMIT = 64
# More runs at once meet the rate limits of the service.
LIVE_RUNS = 100
_FORBIDDEN_IN_PROJECT = set("/\\#?%:")
# The client's variables that are honoured where the key is not typed; WANDB_MODE is, too.
VARIABLES = {
    "project": "WANDB_PROJECT",
    "entity": "WANDB_ENTITY",
    "tags": "WANDB_TAGS",
    "notes": "WANDB_NOTES",
    "group": "WANDB_RUN_GROUP",
    "job_type": "WANDB_JOB_TYPE",
    "run_name": "WANDB_NAME",
    "dir": "WANDB_DIR",
}


def _given(key: str, default: Any = None) -> Any:
    """Return a field whose default is its variable's value when a command is typed."""
    return field(default_factory=lambda: os.environ.get(VARIABLES[key]) or default)


def _project() -> str:
    """Return the variable's value, unless the client refuses it, which is said where it starts."""
    value = os.environ.get(VARIABLES["project"], "")
    allowed = 1 <= len(value) <= _PROJECT_LIMIT and not _FORBIDDEN_IN_PROJECT & set(value)
    return value if allowed else "lm_experiments"


def _tags() -> list[str]:
    tags = (tag.strip() for tag in os.environ.get(VARIABLES["tags"], "").split(","))
    return [tag for tag in tags if 1 <= len(tag) <= TAG_LIMIT]


@dataclass(frozen=True)
class WandbSettings:
    """Weights & Biases; files of the run directory stay the source of truth.

    Attributes:
        mode: whether the run is sent while it trains; auto is online if you are logged in,
            unless WANDB_MODE or ``wandb offline`` says otherwise.
        project: the W&B project; WANDB_PROJECT, else lm_experiments.
        entity: the W&B user or team; WANDB_ENTITY, else your default one.
        tags: tags beside those that tell study, arm, seed, role and outcome; WANDB_TAGS, with
            commas.
        notes: a remark on the run; WANDB_NOTES.
        group: what the runs of a sweep are grouped under; WANDB_RUN_GROUP, else its name.
        job_type: what kind of run it is; WANDB_JOB_TYPE, else train.
        run_name: its name, in a sweep what precedes arm and seed; WANDB_NAME.
        dir: the folder of the client's files; WANDB_DIR, else the run's.
        init_timeout: seconds to wait for the server before going on offline.

    Raises:
        InputError: for values that W&B does not allow.
    """

    mode: str = "auto"
    project: str = field(default_factory=_project)
    entity: str | None = _given("entity")
    tags: list[str] = field(default_factory=_tags)
    notes: str | None = _given("notes")
    group: str | None = _given("group")
    job_type: str = _given("job_type", "train")
    run_name: str | None = _given("run_name")
    dir: str | None = _given("dir")
    init_timeout: float = 30.0

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise InputError(
                f"logger.mode={self.mode} is not known; it can be {', '.join(_MODES)}."
            )
        if bad := sorted(_FORBIDDEN_IN_PROJECT & set(self.project)):
            raise InputError(
                f"logger.project={self.project!r} contains {' '.join(bad)}, which W&B does not "
                "allow; use letters, digits, '-' and '_'."
            )
        if not 1 <= len(self.project) <= _PROJECT_LIMIT:
            raise InputError(
                f"logger.project has {len(self.project)} characters; use 1 to {_PROJECT_LIMIT}."
            )
        if long := [tag for tag in self.tags if not 1 <= len(tag) <= TAG_LIMIT]:
            raise InputError(
                f"logger.tags holds {long[0]!r} with {len(long[0])} characters; "
                f"use 1 to {TAG_LIMIT} for each tag."
            )
        if not self.init_timeout > 0:
            raise InputError(
                f"logger.init_timeout={self.init_timeout} is not a positive number of seconds; "
                "use 30, for example."
            )


def plan_lines(settings: WandbSettings, sweep: str, at_once: int) -> list[str]:
    """Return what is in force for a sweep that trains so many runs at once, with advice."""
    mode = os.environ.get("WANDB_MODE", "auto") if settings.mode == "auto" else settings.mode
    if mode == "disabled":
        return []
    shown = {
        "project": "/".join(filter(None, (settings.entity, settings.project))),
        "group": settings.group or sweep,
        "tags": ", ".join(settings.tags),
        "job type": settings.job_type if settings.job_type != "train" else "",
        "notes": settings.notes,
        "name": settings.run_name,
        "folder": settings.dir,
        "mode": mode,
    }
    text = ", ".join(f"{key} {value}" for key, value in shown.items() if value)
    lines = [f"W&B: {text}{_in_force(settings, mode)}."]
    if at_once > LIVE_RUNS and mode in ("auto", "online"):
        lines.append(
            f"W&B: {at_once} runs at once are more than its rate limits are made for; type "
            "logger.mode=offline, and send them with the wandb sync that the end of the sweep says."
        )
    return lines


def _in_force(settings: WandbSettings, mode: str) -> str:
    """Return the variables that a value is from, in parentheses; empty for none."""
    values = {**vars(settings), "tags": ",".join(settings.tags)}
    used = [name for key, name in VARIABLES.items() if os.environ.get(name) == (values[key] or "")]
    used += ["WANDB_MODE"] if settings.mode == "auto" != mode else []
    return f" (from {', '.join(used)})" if used else ""
