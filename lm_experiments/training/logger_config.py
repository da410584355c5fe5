"""Which logger mirrors a run; kept apart from the loggers, whose imports are heavy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from lm_experiments.errors import InputError

_NAMES = ("wandb", "none")
_MODES = ("auto", "online", "offline", "disabled")
_PROJECT_LIMIT = 128
_TAG_LIMIT = 64
_FORBIDDEN_IN_PROJECT = set("/\\#?%:")


@dataclass
class LoggerConfig:
    """Which logger mirrors the run, and how.

    `mode=auto` is online where W&B credentials are found and offline elsewhere, unless
    `WANDB_MODE` or `wandb offline` says otherwise. `init_timeout` is in seconds. Raises
    `InputError` for values that are not allowed.
    """

    name: str = "wandb"
    mode: str = "auto"
    project: str = "lm_experiments"
    entity: str | None = None
    tags: list[str] = field(default_factory=list)
    init_timeout: float = 30.0

    def __post_init__(self) -> None:
        _check_choice("logger.name", self.name, _NAMES)
        _check_choice("logger.mode", self.mode, _MODES)
        if bad := sorted(_FORBIDDEN_IN_PROJECT & set(self.project)):
            raise InputError(
                f"logger.project={self.project!r} contains {' '.join(bad)}, which W&B does not "
                "allow; use letters, digits, '-' and '_'."
            )
        if not 1 <= len(self.project) <= _PROJECT_LIMIT:
            raise InputError(
                f"logger.project has {len(self.project)} characters; use 1 to {_PROJECT_LIMIT}."
            )
        if long := [tag for tag in self.tags if not 1 <= len(tag) <= _TAG_LIMIT]:
            raise InputError(
                f"logger.tags holds {long[0]!r} with {len(long[0])} characters; "
                f"use 1 to {_TAG_LIMIT} for each tag."
            )
        if not self.init_timeout > 0:
            raise InputError(
                f"logger.init_timeout={self.init_timeout} is not a positive number of seconds; "
                "use 30, for example."
            )


def _check_choice(key: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise InputError(f"{key}={value} is not known; use one of {', '.join(allowed)}.")
