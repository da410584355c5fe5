"""Read a sweep's folder: every planned run and what became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_experiments.rundir.diagnostics import by_part, read_diagnostics
from lm_experiments.rundir.evaluations import Asked, Evaluation, read_evaluations
from lm_experiments.rundir.identity import read_values
from lm_experiments.rundir.ledger import Entry, read_ledger
from lm_experiments.rundir.live import run_state
from lm_experiments.rundir.metrics import Row, read_curve
from lm_experiments.rundir.names import METRICS
from lm_experiments.rundir.results import (
    BROKEN,
    DONE,
    ENDED,
    FAILED,
    FLOPS,
    NON_FINITE,
    OK,
    SECONDS,
    TOKENS,
    Result,
    read_result,
)
from lm_experiments.rundir.study import TUNE, Study
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, open_sweep, run_directories

if TYPE_CHECKING:
    from lm_experiments.rundir.documents import DocumentLosses

VAL_LOSS = "val/loss"
# How far above a guess's the accuracy of a run lies that has left chance.
ESCAPE = 0.1


@dataclass(frozen=True)
class Run:
    """One training: what was planned, and what its directory says.

    Attributes:
        row: the plan's row.
        status: done, running, failed, interrupted, ended or waiting, see `rundir.live.run_state`.
        result: what ``result.json`` says; without one, a `Result` whose values are None.
    """

    row: SweepRow
    directory: Path
    status: str
    result: Result

    @property
    def arm(self) -> str:
        """The label of the run's arm."""
        return self.row.arm

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.row.seed

    @property
    def role(self) -> str:
        """One of `rundir.study.ROLES`."""
        return self.row.role

    @property
    def setting(self) -> Mapping[str, float]:
        """The values that tuning chose."""
        return self.row.setting

    @property
    def overrides(self) -> dict[str, str]:
        """What makes the arm, as key -> value."""
        return dict(text.lstrip("+~").partition("=")[::2] for text in self.row.overrides)

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Everything that determines the result, by dotted key; empty where it is not known."""
        return read_values(self.directory)

    @cached_property
    def documents(self) -> DocumentLosses | None:
        """The final loss of each validation document; None where it is not known."""
        # Imported here because numpy is slow to load.
        from lm_experiments.rundir.documents import read_document_losses

        return read_document_losses(self.directory)

    @cached_property
    def evaluations(self) -> Mapping[str, Evaluation]:
        """What its last weights lose elsewhere, by the name of what was asked."""
        return read_evaluations(self.directory, self.result.val_loss)

    def evaluation(self, asked: Asked) -> Evaluation | None:
        """What was measured of what is asked, None where nothing was."""
        return self.evaluations.get(asked.key(self.result.eval_context or 0))

    @cached_property
    def diagnostics(self) -> Row:
        """The last row of its diagnostics; empty where nothing was looked at."""
        rows = read_diagnostics(self.directory)
        return rows[-1] if rows else {}

    def diagnostic(self, statistic: str, part: str = "") -> float | None:
        """A statistic of one part of the model at the end, or the largest over all parts."""
        parts = by_part(self.diagnostics, statistic)
        if statistic in self.diagnostics:
            parts[""] = self.diagnostics[statistic]
        return parts.get(part) if part else max(parts.values(), default=None)

    @cached_property
    def curve(self) -> Mapping[int, float]:
        """The validation loss in nats per token by step, on the part of the text it is watched."""
        return read_curve(self.directory / METRICS, VAL_LOSS)

    def per_step(self, against: str) -> float | None:
        """How many tokens, flops or seconds a step took; None where the run does not say."""
        result = self.result
        whole = {TOKENS: result.tokens, FLOPS: result.train_flops, SECONDS: result.seconds}[against]
        return whole / result.steps if whole and result.steps else None

    @property
    def config_hash(self) -> str | None:
        """The hash of the configuration: the result's, else the plan's."""
        return self.result.config_hash or self.row.config_hash

    @property
    def commit(self) -> str | None:
        """The code's commit, with "+dirty" where there were uncommitted changes."""
        commit = self.result.commit
        return f"{commit}+dirty" if commit and self.result.dirty else commit

    @property
    def code(self) -> str | None:
        """The hash of the code, or else its commit."""
        return self.result.code_hash or self.commit

    @property
    def error(self) -> str | None:
        """What stopped the run, on one line."""
        return str(self.result.error) if self.result.error else None

    @property
    def parameters(self) -> int | None:
        """All weights of the model."""
        return self.result.parameters.get("total")

    @property
    def non_embedding(self) -> int | None:
        """The weights of the model without its embeddings."""
        return self.result.parameters.get("non_embedding")

    @property
    def outcome(self) -> str:
        """One word for the table: ok, another outcome, FAILED, or the status."""
        if self.status == FAILED:
            return "FAILED"
        if self.status != DONE:
            return self.status
        if self.usable or self.result.outcome in BROKEN:
            return self.result.outcome or OK
        return NON_FINITE

    @property
    def finished(self) -> bool:
        """Whether the run ended by itself, well or badly."""
        return self.status in (DONE, FAILED)

    @property
    def over(self) -> bool:
        """Whether nothing is left to train: the run ended by itself, or halving ended it."""
        return self.finished or self.status == ENDED

    @property
    def usable(self) -> bool:
        """Whether the final loss may be averaged: trained to the end, and finite."""
        return self.status == DONE and self.result.usable

    @property
    def failing(self) -> bool:
        """Whether the run ended without a usable loss, which counts against its arm."""
        return self.finished and not self.usable

    @property
    def left_chance(self) -> bool | None:
        """Whether it learnt its synthetic task at all; None without one, or without a usable loss.

        It did if the share of the validation answers that are right, within the trained lengths, is
        more than `ESCAPE` above that of a guess among the symbols of a problem that have not come
        again. A run that has not says nothing of what its architecture can do.
        """
        accuracy, chance = self.value("accuracy"), self.result.chance
        return None if accuracy is None or chance is None else accuracy > chance + ESCAPE

    def fact(self, name: str) -> Any:
        """A value by name: a property of the run, else a field of its result."""
        return getattr(self if hasattr(self, name) else self.result, name)

    def value(self, metric: str) -> float | None:
        """A measure, on either set; None where it may not be averaged."""
        number: float | None = getattr(self.result, metric) if self.usable else None
        return number if number is not None and math.isfinite(number) else None


@dataclass(frozen=True)
class Sweep:
    """A sweep's record with its runs in declared order.

    Attributes:
        runs: those the table is made of.
        trials: those made to tune a value.
        extra: run directories that the plan does not list.
        ledger: what was declared and shown, in order; empty where nothing was written down.
        parts: the sweeps that were merged into this one; empty for a sweep by itself.
    """

    directory: Path
    record: SweepRecord
    runs: tuple[Run, ...]
    trials: tuple[Run, ...] = ()
    extra: tuple[Path, ...] = ()
    ledger: tuple[Entry, ...] = ()
    parts: tuple[Sweep, ...] = ()

    @property
    def study(self) -> Study | None:
        """The declared study, None for a sweep that declares nothing."""
        return self.record.study

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms' labels, in declared order."""
        declared = self.study.arms if self.study else ()
        return tuple(dict.fromkeys([*declared, *(run.arm for run in self.runs)]))

    @property
    def baseline(self) -> str:
        """The declared baseline: the study's, or the first arm of the command."""
        return self.study.baseline if self.study else self.arms[0]

    @property
    def pending(self) -> list[tuple[str, int, str]]:
        """The (arm, seed, role) that a study declares and its plan does not list yet."""
        if self.parts:
            return [cell for part in self.parts for cell in part.pending]
        listed = {(run.arm, run.seed, run.role) for run in self.runs}
        return [cell for cell in (self.study.cells if self.study else ()) if cell not in listed]

    @property
    def tested(self) -> bool:
        """Whether all runs that may be averaged, of which there are some, have a test loss."""
        losses = [run.result.test_loss for run in self.runs if run.usable]
        return bool(losses) and None not in losses

    @property
    def complete(self) -> bool:
        """Whether every run of the table has ended by itself."""
        return not self.pending and all(run.finished for run in self.runs)


def collect(sweep_dir: str | Path) -> Sweep:
    """Read a sweep's folder; `InputError` where it is absent, has no runs or a damaged file."""
    folder = Path(sweep_dir)
    record = open_sweep(folder)
    runs = [read_run(folder, row) for row in record.runs]
    planned = {row.directory for row in record.runs}
    return Sweep(
        directory=folder,
        record=record,
        runs=tuple(run for run in runs if run.role != TUNE),
        trials=tuple(run for run in runs if run.role == TUNE),
        extra=tuple(path for path in run_directories(folder) if path.name not in planned),
        ledger=tuple(read_ledger(folder)),
    )


def read_run(folder: Path, row: SweepRow) -> Run:
    """Read one planned run; `InputError` where its ``result.json`` is damaged."""
    directory = folder / row.directory
    result = read_result(directory)
    status = run_state(directory, result)
    return Run(row, directory, status, result or Result(status, row.arm, row.seed))
