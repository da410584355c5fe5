"""What can be set about the mirror of a run in W&B."""

from __future__ import annotations

from dataclasses import dataclass, field

from lm_experiments.errors import InputError

_MODES = ("auto", "online", "offline", "disabled")
_PROJECT_LIMIT = 128
_TAG_LIMIT = 64
_FORBIDDEN_IN_PROJECT = set("/\\#?%:")


@dataclass(frozen=True)
class WandbSettings:
    """Weights & Biases; files of the run directory stay the source of truth.

    Attributes:
        mode: whether the run is sent while it trains; auto is online if you are logged in,
            unless WANDB_MODE or ``wandb offline`` says otherwise.
        project: the W&B project.
        entity: the W&B user or team; null is your default one.
        tags: the tags of the run.
        init_timeout: seconds to wait for the server before going on offline.

    Raises:
        InputError: for values that W&B does not allow.
    """

    mode: str = "auto"
    project: str = "lm_experiments"
    entity: str | None = None
    tags: list[str] = field(default_factory=list)
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
