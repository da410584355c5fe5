"""Which loggers mirror a run; apart from the loggers themselves, whose imports are slow."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from lm_experiments.errors import InputError, not_installed
from lm_experiments.registry import component, register
from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.training.wandb.settings import WandbSettings, plan_lines

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

    from lm_experiments.training.logged_run import LoggedRun

# In the directory of a run that MLflow has: its id there.
MLFLOW_ID = "mlflow_id"


@dataclass(frozen=True)
class LoggerConfig:
    """Base of the loggers that mirror a run; ``metrics.jsonl`` is always written.

    Attributes:
        also: further loggers; logger=[wandb,tensorboard] is logger=wandb with this.
    """

    # Set by `register`.
    name: ClassVar[str]
    # The package that it needs, where that is an extra of this one.
    package: ClassVar[str] = ""
    # Whether a resumed run's log starts empty, so that its rows are given again.
    anew: ClassVar[bool] = False
    also: list[str] = field(default_factory=list)

    def build(self, run: LoggedRun, resume_step: int | None) -> Logger | None:
        """Return the Lightning logger of a run that continues after a step, None for no mirror."""
        raise NotImplementedError

    def plan(self, sweep: str, at_once: int) -> list[str]:
        """Return the lines of the plan on where runs are logged, so many of them at once."""
        return []

    @property
    def parts(self) -> list[LoggerConfig]:
        """This logger and the further ones, those at their defaults.

        `InputError` for a name that no logger has.
        """
        return [self, *(component("logger", name).options() for name in self.also)]

    def check(self) -> None:
        """Raise `InputError` where a logger is not known, or its package not installed."""
        for part in self.parts:
            if part.package and importlib.util.find_spec(part.package) is None:
                raise InputError(not_installed(f"logger={part.name}"))


@register("logger", "wandb")
@dataclass(frozen=True)
class WandbConfig(WandbSettings, LoggerConfig):
    """Weights & Biases; files of the run directory stay the source of truth."""

    def build(self, run: LoggedRun, resume_step: int | None) -> Logger:
        """Return the run's mirror in W&B."""
        from lm_experiments.training.wandb.logger import WandbMirror

        return WandbMirror(self, run)

    def plan(self, sweep: str, at_once: int) -> list[str]:
        """Return what is in force, and which variables say so."""
        return plan_lines(self, sweep, at_once)


@register("logger", "tensorboard")
@dataclass(frozen=True)
class TensorboardConfig(LoggerConfig):
    """TensorBoard, in the folder ``tensorboard`` of the run directory."""

    package = "tensorboard"

    def build(self, run: LoggedRun, resume_step: int | None) -> Logger:
        """Return Lightning's logger; the steps that are repeated are purged."""
        from lightning.pytorch.loggers import TensorBoardLogger

        purge: dict[str, Any] = {} if resume_step is None else {"purge_step": resume_step + 1}
        folder = str(run.directory)
        return TensorBoardLogger(folder, "tensorboard", "", default_hp_metric=False, **purge)


@register("logger", "csv")
@dataclass(frozen=True)
class CsvConfig(LoggerConfig):
    """A table of all metrics, ``csv/metrics.csv`` in the run directory."""

    anew = True

    def build(self, run: LoggedRun, resume_step: int | None) -> Logger:
        """Return Lightning's logger."""
        from lightning.pytorch.loggers import CSVLogger

        return CSVLogger(str(run.directory), "csv", "")


@register("logger", "mlflow")
@dataclass(frozen=True)
class MlflowConfig(LoggerConfig):
    """MLflow, where MLFLOW_TRACKING_URI says or in ``mlruns``; an experiment for each sweep."""

    package = "mlflow"

    def build(self, run: LoggedRun, resume_step: int | None) -> Logger:
        """Return Lightning's logger, which goes on with the run that it began."""
        from lightning.pytorch.loggers import MLFlowLogger

        path = run.directory / MLFLOW_ID
        logger = MLFlowLogger(
            experiment_name=run.sweep,
            run_name=f"{run.arm} s{run.seed}",
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI"),
            run_id=path.read_text(encoding="utf-8") if path.is_file() else None,
        )
        write_atomically(path, str(logger.run_id))
        return logger


@register("logger", "none")
@dataclass(frozen=True)
class NoLogger(LoggerConfig):
    """No mirror."""

    def build(self, run: LoggedRun, resume_step: int | None) -> None:
        """Return None."""
