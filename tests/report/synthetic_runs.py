"""A factory for synthetic sweeps: run directories with known losses, and the plan beside them.

Every file is written by the package's own writers, so that it has just what real runs have.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_experiments.rundir.ledger import record_command
from lm_experiments.rundir.metrics import Row, write_rows
from lm_experiments.rundir.names import CONFIG, METRICS
from lm_experiments.rundir.results import DONE, FAILED, OK, Result, RunError, write_result
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, write_sweep


def result_of(arm: str, seed: int, loss: float | None, **changes: Any) -> Result:
    """The result of a finished run, with some fields changed."""
    finite = loss is not None and math.isfinite(loss)
    result = Result(
        status=DONE,
        arm=arm,
        seed=seed,
        outcome=OK,
        val_loss=loss,
        val_tokens=40960,
        bits_per_byte=0.5 * loss if loss is not None and finite else None,
        perplexity=math.exp(loss) if loss is not None and finite else None,
        steps=1000,
        tokens=4096000,
        parameters={"total": 4213760, "non_embedding": 3165184},
        flops_per_token=25282560,
        tokens_per_second=20311.5,
        learning_rate=0.001,
        config_hash="c" * 64,
        data_hash="d" * 64,
        commit="a" * 40,
        dirty=False,
    )
    return dataclasses.replace(result, **changes)


def failed(arm: str, seed: int, kind: str, message: str, **changes: Any) -> Result:
    """The result of a run that raised."""
    error = RunError(kind, message)
    return result_of(arm, seed, None, status=FAILED, outcome=None, error=error, **changes)


def history(loss: float, seed: int, steps: int = 1000, every: int = 25) -> list[Row]:
    """Validation rows of a run that falls from 8.3 to about `loss`, with some noise."""
    noise = random.Random(f"{loss} {seed}")
    rows = []
    for step in range(every, steps + 1, every):
        left = (steps - step) / steps
        falling = (8.3 - loss) * (math.exp(-step / 60) + 0.25 * left * math.exp(-step / 320))
        error = noise.gauss(0, 0.004) if step < steps else 0.0
        rows.append({"step": step, "val/loss": loss + falling + error})
    return rows


def write_run(
    directory: Path,
    arm: str,
    seed: int,
    result: Result | None = None,
    rows: Iterable[Row] | None = None,
) -> None:
    """Write a run directory as training leaves it."""
    directory.mkdir(parents=True)
    (directory / CONFIG).write_text(f"name: test\narm: {arm}\nseed: {seed}\n")
    if result is not None:
        write_result(directory, result)
    if rows is not None:
        write_rows(directory / METRICS, rows)


class SweepFactory:
    """Writes runs into one sweep's folder and, when asked, the plan that lists them."""

    def __init__(self, root: Path) -> None:
        """Use `root` as the sweep's folder."""
        self.root = root
        self.root.mkdir(parents=True)
        self.planned: list[SweepRow] = []

    def run(
        self,
        arm: str,
        seed: int = 0,
        *,
        result: Result | None = None,
        metrics: Iterable[Row] | None = None,
        overrides: Sequence[str] = (),
        exists: bool = True,
    ) -> Path:
        """Add one run to the plan and, unless it does not exist yet, write its directory."""
        digest = hashlib.sha256(f"{arm} {seed}".encode()).hexdigest()
        directory = self.root / f"{arm.replace(' ', '-')}-s{seed}-{digest[:8]}"
        self.planned.append(SweepRow(arm, seed, directory.name, digest, list(overrides)))
        if exists:
            write_run(directory, arm, seed, result, metrics)
        return directory

    def done(self, arm: str, losses: Mapping[int, float], **changes: Any) -> None:
        """Add finished runs of one arm, one for each seed, with the losses given."""
        for seed, loss in losses.items():
            self.run(arm, seed, result=result_of(arm, seed, loss, **changes))

    def plan(self, *axes: str) -> Path:
        """Write `sweep.json` for the runs so far and return the sweep's folder."""
        record = SweepRecord(self.root.name, "x", list(axes), None, runs=self.planned)
        write_sweep(self.root, record)
        record_command(self.root, record)
        return self.root


def grid(factory: SweepFactory, seeds: int) -> None:
    """Add the twelve arms of placement x ffn x position."""
    gains = {"pre": 0.0, "post": 0.09, "relu": 0.05, "swiglu": 0.0}
    positions = {"sinusoidal": 0.06, "none": 0.11, "rope": 0.0}
    for placement in ("pre", "post"):
        for ffn in ("relu", "swiglu"):
            for position, extra in positions.items():
                arm = f"{placement} {ffn} {position}"
                given = (f"placement={placement}", f"ffn={ffn}", f"position={position}")
                for seed in range(seeds):
                    noise = random.Random(f"{arm}{seed}").gauss(0, 0.02)
                    loss = 3.2 + gains[placement] + gains[ffn] + extra + noise
                    result, rows = result_of(arm, seed, loss), history(loss, seed)
                    factory.run(arm, seed, result=result, metrics=rows, overrides=given)
