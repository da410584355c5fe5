"""The names of the files of run and sweep directories, and what to do where one is damaged."""

from __future__ import annotations

from pathlib import Path

from lm_experiments.errors import InputError

# Of a run.
CONFIG = "config.yaml"
IDENTITY = "identity.json"
METRICS = "metrics.jsonl"
RESULT = "result.json"
DOCUMENTS = "documents.npz"
DIAGNOSTICS = "diagnostics.jsonl"
EVALUATIONS = "evaluations.json"
SAMPLES = "samples.jsonl"
LOG = "train.log"
LOCK = ".lock"
PAUSE = "pause.json"
TOKENIZER = "tokenizer.json"
CHECKPOINTS = "checkpoints"
# How many characters of its hash end the name of its directory.
HASH_END = 8
# Of a sweep.
SWEEP = "sweep.json"
LEDGER = "ledger.jsonl"
# Of a folder of cells that were trained again.
REPRODUCED = "reproduced.json"

_REMEDIES = {
    RESULT: "remove it, and the same command trains the run again",
    DOCUMENTS: "remove it; the run keeps its loss, without that of each document",
    EVALUATIONS: "remove it, and scripts/evaluate.py measures again",
    SWEEP: "remove it, and the same command writes it again; the runs beside it stay",
    PAUSE: "remove it, and the same command writes it again",
    IDENTITY: "remove it, and the same command writes it again",
    LEDGER: "put it back from a copy, or remove it: the table is exploratory without it",
}


def damaged(path: Path, reason: str) -> InputError:
    """Return the error for a file that does not hold what it should, for ``reason``."""
    anything = "put it back from a copy, or remove its folder and repeat the command"
    return InputError(f"{path} is damaged ({reason}); {_REMEDIES.get(path.name, anything)}.")


def log_name(rank: int) -> str:
    """Return the name of the log of one process; rank zero's is the run's."""
    return f"train.rank{rank}.log" if rank else LOG
