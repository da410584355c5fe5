"""Which logger mirrors a run; apart from the loggers themselves, whose imports are slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lm_experiments.registry import register
from lm_experiments.training.wandb.settings import WandbSettings, plan_lines

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

    from lm_experiments.training.logged_run import LoggedRun


@dataclass(frozen=True)
class LoggerConfig:
    """Base of the loggers that mirror a run; ``metrics.jsonl`` is always written."""

    # Set by `register`.
    name: ClassVar[str]

    def build(self, run: LoggedRun) -> Logger | None:
        """Return the Lightning logger of a run, None for no mirror."""
        raise NotImplementedError

    def plan(self, sweep: str, at_once: int) -> list[str]:
        """Return the lines of the plan on where runs are logged, so many of them at once."""
        return []


@register("logger", "wandb")
@dataclass(frozen=True)
class WandbConfig(WandbSettings, LoggerConfig):
    """Weights & Biases; files of the run directory stay the source of truth."""

    def build(self, run: LoggedRun) -> Logger:
        """Return the run's mirror in W&B."""
        from lm_experiments.training.wandb.logger import WandbMirror

        return WandbMirror(self, run)

    def plan(self, sweep: str, at_once: int) -> list[str]:
        """Return what is in force, and which variables say so."""
        return plan_lines(self, sweep, at_once)


@register("logger", "none")
@dataclass(frozen=True)
class NoLogger(LoggerConfig):
    """No mirror."""

    def build(self, run: LoggedRun) -> None:
        """Return None."""
