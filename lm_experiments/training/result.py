"""``result.json``: what a run came to, and how it can be traced."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
import subprocess
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lm_experiments.model import count

from .config import RunConfig
from .files import write_json
from .history import History
from .metrics import perplexity
from .module import LanguageModel

RESULT = "result.json"
# The fraction by which a validation loss may end above its best.
DEGRADED = 0.02
PACKAGES = (
    "lm_experiments",
    "torch",
    "lightning",
    "hydra-core",
    "wandb",
    "torchmetrics",
    "tokenizers",
)


def outcome(history: History) -> tuple[str, int | None]:
    """Classify a run that ended by itself, with the step at which its fate showed.

    failed-at-init
        the first loss or gradient was not a finite number.
    non-finite
        a later one was not, or the validation loss is not.
    diverged
        it ended no better than it began.
    degraded
        its last validation loss is worse than its best one by more than `DEGRADED`.
    spiked
        its training loss once rose by more than `history.SPIKE`, and it recovered.
    ok
        none of these.
    """
    loss = history.validation.get("val/loss", math.nan)
    if history.bad_step == 1:
        return "failed-at-init", 1
    if history.bad_step is not None or not math.isfinite(loss):
        return "non-finite", history.bad_step or history.validated_step
    if loss >= (history.initial_loss or math.inf):
        return "diverged", history.validated_step
    if loss > history.best_validation_loss * (1 + DEGRADED):
        return "degraded", history.validated_step
    return ("ok", None) if history.spike_step is None else ("spiked", history.spike_step)


def write_result(
    run_dir: Path,
    config: RunConfig,
    status: str,
    module: LanguageModel | None,
    facts: dict[str, Any],
    error: BaseException | None = None,
) -> None:
    """Write ``result.json`` whole or not at all; non-finite numbers become strings.

    Args:
        run_dir: the run directory.
        config: the run's configuration.
        status: done, failed or interrupted.
        module: the module that was trained, where it came to that.
        facts: further entries: hashes, device, memory.
        error: what stopped the run, where something did.
    """
    history = module.history if module else History()
    result = {
        "status": status,
        "arm": config.arm,
        "seed": config.seed,
        **_losses(history, done=status == "done"),
        **_costs(config, history),
        **facts,
        **provenance(),
        "error": None if error is None else error_entry(error),
    }
    write_json(run_dir / RESULT, {key: _finite(value) for key, value in result.items()})


def _losses(history: History, done: bool) -> dict[str, Any]:
    """Return how well the model does; a run that is not done has no final loss."""
    name, step = outcome(history) if done else (None, None)
    validation = history.validation if done else {}
    loss = validation.get("val/loss")
    return {
        "outcome": name,
        "outcome_step": step,
        "val_loss": loss,
        "val_tokens": history.validation_tokens,
        "bits_per_byte": validation.get("val/bits_per_byte"),
        "perplexity": None if loss is None else perplexity(loss),
        "initial_loss": history.initial_loss,
        "gradient_norm_at_init": history.first_gradient_norm,
    }


def _costs(config: RunConfig, history: History) -> dict[str, Any]:
    """Return what the model is made of, and what was spent on it."""
    ledger = count(config.model)
    tokens = history.last_step * config.data.batch_size * config.model.context_length
    total = {"total": ledger.parameters, "non_embedding": ledger.non_embedding}
    return {
        "eval_context": config.model.context_length,
        "steps": history.last_step,
        "tokens": tokens,
        "parameters": {**total, **ledger.parts},
        "ffn_width": ledger.ffn_width,
        "flops_per_token": ledger.training_flops_per_token,
        "train_flops": ledger.training_flops_per_token * tokens,
        "seconds": history.seconds,
        "tokens_per_second": history.tokens_per_second,
        "learning_rate": config.optimizer.lr,
    }


def is_done(run_dir: Path) -> bool:
    """Return whether a run's result says that it was trained to its end."""
    try:
        result = json.loads((run_dir / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(result, dict) and result.get("status") == "done"


def provenance() -> dict[str, Any]:
    """Return the code's commit, whether it was changed since, its hash, and package versions.

    All of it is as it was when this module was loaded: what is edited later did not run.
    """
    return {
        **_LOADED,
        "versions": _versions(),
        "machine": platform.machine(),
    }


def error_entry(error: BaseException) -> dict[str, Any]:
    """Return how a result names what stopped the run."""
    message = str(error) or traceback.format_exception_only(error)[-1].strip()
    if _is_out_of_memory(error):
        message = f"Out of memory; try a smaller trainer.micro_batch_size. {message}"
    return {"type": type(error).__name__, "message": message, "traceback": "train.log"}


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; on a CPU torch says so in a RuntimeError."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@cache
def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return {"python": platform.python_version(), **found}


def _git(*arguments: str) -> str | None:
    """Return what git says of the folder this code lies in, None outside a repository."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _code_hash() -> str:
    """Return the SHA-256 of this package's source files."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


_LOADED: dict[str, Any] = {
    "commit": _git("rev-parse", "HEAD"),
    "dirty": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "..")),
    "code_hash": _code_hash(),
}
