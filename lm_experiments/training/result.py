"""``result.json``: what a run came to, and how it can be traced."""

from __future__ import annotations

import math
import platform
import subprocess
import traceback
from pathlib import Path
from typing import Any

import torch

from lm_experiments.data import chance
from lm_experiments.model import count
from lm_experiments.rundir.names import LOG
from lm_experiments.rundir.results import (
    DEGRADED,
    DIVERGED,
    DONE,
    FAILED_AT_INIT,
    NON_FINITE,
    OK,
    SPIKED,
    Result,
    RunError,
)
from lm_experiments.source import training_hash, version_of
from lm_experiments.training.config import RunConfig
from lm_experiments.training.history import History
from lm_experiments.training.metrics import perplexity
from lm_experiments.training.module import LanguageModel

# The fraction by which a validation loss may end above its best.
DEGRADED_SHARE = 0.02
# And in nats: of a solved task nothing is left but noise.
DEGRADED_NATS = 0.01
COMPILERS = ("torch._dynamo", "torch._inductor")
PACKAGES = (
    "lm_experiments",
    "torch",
    "lightning",
    "hydra-core",
    "wandb",
    "torchmetrics",
    "tokenizers",
)


def outcome(history: History, vocab_size: int) -> tuple[str, int | None]:
    """Classify a run that ended by itself, with the step at which its fate showed.

    failed-at-init
        the first loss or gradient was not a finite number.
    non-finite
        a later one was not, or the validation loss is not.
    diverged
        it ended no better than it began.
    degraded
        its validation curve ends above its best point by more than `DEGRADED_SHARE` and
        `DEGRADED_NATS`, or its loss above that of a guess among all tokens, the logarithm of
        ``vocab_size``.
    spiked
        its training loss once rose by more than `history.SPIKE`, and it recovered.
    ok
        none of these.
    """
    loss = history.validation.get("val/loss", math.nan)
    if history.bad_step == 1:
        return FAILED_AT_INIT, 1
    if history.bad_step is not None or not math.isfinite(loss):
        return NON_FINITE, history.bad_step or history.validated_step
    if loss >= (history.initial_loss or math.inf):
        return DIVERGED, history.validated_step
    end = history.curve.get("val/loss", loss)
    best = history.best_validation_loss
    rose = end > best * (1 + DEGRADED_SHARE) and end - best > DEGRADED_NATS
    if rose or loss > math.log(vocab_size):
        return DEGRADED, history.validated_step
    return (OK, None) if history.spike_step is None else (SPIKED, history.spike_step)


def result_of(
    config: RunConfig,
    status: str,
    module: LanguageModel | None,
    facts: dict[str, Any],
    error: BaseException | None = None,
) -> Result:
    """Return what a run came to.

    Args:
        config: the run's configuration.
        status: done, failed or interrupted.
        module: the module that was trained, where it came to that.
        facts: further fields: hashes, device, memory.
        error: what stopped the run, where something did.
    """
    history = module.history if module else History()
    return Result(
        status=status,
        arm=config.arm,
        seed=config.seed,
        **_losses(history, config.model.vocab_size, done=status == DONE),
        chance=chance(config.data.name, config.data.task) if config.data.is_task else None,
        **_costs(config, history),
        **facts,
        **provenance(),
        error=None if error is None else run_error(error),
    )


def _losses(history: History, vocab_size: int, done: bool) -> dict[str, Any]:
    """Return how well the model does; a run that is not done has no final loss."""
    name, step = outcome(history, vocab_size) if done else (None, None)
    validation, test = (history.validation, history.test) if done else ({}, {})
    loss = validation.get("val/loss")
    return {
        "outcome": name,
        "outcome_step": step,
        "val_loss": loss,
        "val_tokens": history.validation_tokens,
        "average_val_loss": history.average.get("val/loss"),
        "curve_loss": history.curve.get("val/loss"),
        "curve_tokens": history.curve_tokens,
        "best_val_loss": None if history.best_step is None else history.best_validation_loss,
        "best_step": history.best_step,
        "bits_per_byte": validation.get("val/bits_per_byte"),
        "perplexity": None if loss is None else perplexity(loss),
        "test_loss": test.get("test/loss"),
        "test_tokens": history.test_tokens,
        "test_bits_per_byte": test.get("test/bits_per_byte"),
        "accuracy": validation.get("val/accuracy"),
        "exact_match": validation.get("val/exact_match"),
        "test_accuracy": test.get("test/accuracy"),
        "test_exact_match": test.get("test/exact_match"),
        "loss_spikes": history.spikes,
        "initial_loss": history.initial_loss,
        "gradient_norm_at_init": history.first_gradient_norm,
    }


def _costs(config: RunConfig, history: History) -> dict[str, Any]:
    """Return what the model is made of, and what was spent on it."""
    ledger = count(config.model)
    tokens = history.last_step * config.tokens_per_step
    total = {"total": ledger.parameters, "non_embedding": ledger.non_embedding}
    return {
        "eval_context": config.model.context_length,
        "steps": history.last_step,
        "tokens": tokens,
        "equal": config.trainer.equal,
        "parameters": {**total, **ledger.parts},
        "ffn_width": ledger.ffn_width,
        "match": config.model.match,
        "match_tolerance": config.model.match_tolerance,
        "flops_per_token": ledger.training_flops_per_token,
        "train_flops": ledger.training_flops_per_token * tokens,
        "seconds": history.seconds,
        "tokens_per_second": history.tokens_per_second,
        "learning_rate": config.optimizer.lr,
    }


def provenance() -> dict[str, Any]:
    """Return the code's commit, whether it was changed since, its hash, and package versions.

    All of it is as it was when this module was loaded: what is edited later did not run.
    """
    return dict(_LOADED)


def code_patch() -> str:
    """Return how the code differs from its commit, as `git diff` writes it; empty if it does not.

    As `provenance`, it is of the code that was loaded.
    """
    return _PATCH


def run_error(error: BaseException, log: str = LOG) -> RunError:
    """Return how a result names what stopped the run.

    Args:
        error: what was raised.
        log: the file that has its traceback.
    """
    message = str(error) or traceback.format_exception_only(error)[-1].strip()
    # On a CPU torch reports it as a RuntimeError.
    on_cpu = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    if on_cpu or isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        message = f"Out of memory; try a smaller trainer.micro_batch_size. {message}"
    if type(error).__module__.startswith(COMPILERS):
        message = f"The model could not be compiled; type compile=false, for all runs. {message}"
    return RunError(type(error).__name__, message, log)


def _git(*arguments: str) -> str | None:
    """Return what git says of the folder this code lies in, None outside a repository."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip()


_PATCH = _git("diff", "--no-ext-diff", "HEAD", "--", "..") or ""
_LOADED: dict[str, Any] = {
    "commit": _git("rev-parse", "HEAD"),
    "dirty": bool(_PATCH),
    "code_hash": training_hash(),
    "versions": {
        "python": platform.python_version(),
        **{name: version_of(name) for name in PACKAGES},
    },
    "machine": platform.machine(),
}
