"""``diagnostics.jsonl``: what the parts of a model do while it trains, a row for each look.

A row is ``{"step": 20, "gradient_norm/embedding": 0.1, "gradient_norm/0": 0.2, ..., "log_z": 7}``.
The parts of a model are ``embedding``, its blocks from ``0`` on, and ``head``. A statistic that a
part does not have is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lm_experiments.rundir.metrics import Row, read_rows
from lm_experiments.rundir.names import DIAGNOSTICS

EMBEDDING, HEAD = "embedding", "head"
GRADIENT, UPDATE = "gradient_norm", "update_ratio"
STREAM, LARGEST = "stream_rms", "largest_activation"
SCORE, ENTROPY, LOG_Z = "attention_logit", "attention_entropy", "log_z"
# Before the name of a statistic in W&B, and in the columns of a table.
PREFIX = "diagnostics/"
# What each statistic is; all but the last are by part of the model.
STATISTICS: Mapping[str, str] = {
    GRADIENT: "norm of the gradient, before it is clipped",
    UPDATE: "norm of the step's change of the weights over the norm of the weights",
    STREAM: "root mean square of the residual stream after the part",
    LARGEST: "largest absolute value of the residual stream after the part",
    SCORE: "largest attention logit, as the softmax sees it",
    ENTROPY: "mean entropy of the attention of a query, in nats",
    LOG_Z: "mean log-partition function of the head, in nats",
}


def read_diagnostics(run_dir: Path) -> list[Row]:
    """Return a run's rows in the order of their steps; none where nothing was looked at."""
    return read_rows(run_dir / DIAGNOSTICS)


def by_part(row: Row, statistic: str) -> dict[str, float]:
    """Return a statistic of each part that has it, in the order of the model."""
    start = f"{statistic}/"
    return {key.removeprefix(start): row[key] for key in row if key.startswith(start)}
