"""The loggers of one run: `metrics.jsonl` in its directory and, if wanted, a mirror in W&B."""

from __future__ import annotations

import contextlib
import math
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from lm_experiments.model import count
from lm_experiments.rundir.ledger import declaration_of
from lm_experiments.rundir.metrics import read_rows, row_text, write_rows
from lm_experiments.rundir.names import METRICS
from lm_experiments.rundir.results import Result
from lm_experiments.rundir.sweeps import SweepRecord, read_sweep
from lm_experiments.training.config import RunConfig, plain_values
from lm_experiments.training.logged_run import LoggedRun
from lm_experiments.training.logger_config import LoggerConfig
from lm_experiments.training.wandb.logger import WandbMirror


class JsonlLogger(Logger):
    """Appends each logged row to `metrics.jsonl` as `{"step": step, **metrics}`.

    Non-finite numbers are written as "nan", "inf" and "-inf". With `resume_step` the rows after
    that step are dropped first, so that the repeated steps are logged once; -1 drops every row.
    Only rank zero writes.
    """

    # A run directory has the run's name, and holds one version.
    name = ""
    version = ""

    def __init__(self, run_dir: Path, resume_step: int | None = None) -> None:
        super().__init__()
        self._path = run_dir / METRICS
        self._file: TextIO | None = None
        self._last_step = 0
        self._kept: dict[tuple[int, frozenset[str]], dict[str, Any]] = {}
        if getattr(rank_zero_only, "rank", 0) == 0 and self._path.is_file():
            last = math.inf if resume_step is None else resume_step
            rows = [row for row in read_rows(self._path) if row["step"] <= last]
            write_rows(self._path, rows)
            self._kept = {(row["step"], frozenset(row)): row for row in rows}

    @property
    def save_dir(self) -> str:
        """The run directory."""
        return str(self._path.parent)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one row; without a step it belongs to the last one seen."""
        self._last_step = step = self._last_step if step is None else step
        row = {"step": step, **{key: _plain(value) for key, value in metrics.items()}}
        # The last validation is made again if a run was killed between it and its result. On a
        # GPU it may come out otherwise, and the result is what the row has to agree with.
        if (there := self._kept.pop((step, frozenset(row)), None)) == row:
            return
        try:
            if there is not None:
                self.finalize("")
                rows = [other for other in read_rows(self._path) if other != there]
                write_rows(self._path, rows)
            if self._file is None:
                self._file = self._path.open("a", encoding="utf-8")
            self._file.write(row_text(row))
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing: `config.yaml` in the run directory is the record."""

    def finalize(self, status: str) -> None:
        """Close the file; a later row opens it again."""
        if self._file is not None:
            # A write that failed, as on a full disk, was raised when the row was logged.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _plain(value: Any) -> Any:
    number = value.item() if hasattr(value, "item") else value
    return str(number) if isinstance(number, float) and not math.isfinite(number) else number


@dataclass
class RunLoggers:
    """The loggers of one run; whoever builds them calls `finish` in the end, whatever happens.

    `wandb_mode` is the mode of the W&B run: online, offline, disabled, or none without W&B.
    """

    loggers: list[Logger]
    wandb_mode: str

    def finish(self, exit_code: int, result: Result | None = None) -> None:
        """Close every logger, which is told what the run came to, where that is known.

        W&B shows the run as failed unless `exit_code` is 0.
        """
        for logger in self.loggers:
            if isinstance(logger, WandbMirror):
                logger.finish(exit_code, result)
            else:
                logger.finalize("success" if exit_code == 0 else "failed")


def logged_run(
    run_dir: Path, config: RunConfig, commit: str | None = None, patch: str = ""
) -> LoggedRun:
    """Return what loggers are told about the run of a directory, and about the code's commit."""
    record = read_sweep(run_dir.parent) or SweepRecord()
    roles = [row.role for row in record.runs if row.directory == run_dir.name]
    return LoggedRun(
        run_dir,
        config.name or run_dir.parent.name,
        config.arm,
        config.seed,
        plain_values(config),
        config.tokens_per_step,
        count(config.model).training_flops_per_token,
        tuple(dict.fromkeys(roles)),
        declaration_of(record).baseline if roles else "",
        alone=len(record.runs) < 2,
        commit=commit,
        patch=patch,
    )


def build_loggers(
    config: LoggerConfig, run: LoggedRun, resume_step: int | None = None
) -> RunLoggers:
    """Build the loggers of one run in its directory, which must exist.

    `resume_step` is the global step of the checkpoint the run continues from, -1 when it starts
    over. Rows on disk that W&B lacks are sent, and no row is sent twice.
    """
    loggers: list[Logger] = [JsonlLogger(run.directory, resume_step)]
    there = read_rows(run.directory / METRICS)
    mode = "none"
    for part in config.parts:
        logger = part.build(run, resume_step)
        loggers += [logger] if logger else []
        if isinstance(logger, WandbMirror):
            mode = logger.mode
            if mode != "disabled":
                logger.bring_level(there)
        elif logger and part.anew:
            for row in there:
                logger.log_metrics({k: v for k, v in row.items() if k != "step"}, row["step"])
    return RunLoggers(loggers, mode)
