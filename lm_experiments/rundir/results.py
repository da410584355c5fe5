"""``result.json``: how a run ended, what it reached, what it cost, and how it can be traced."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import jsonable, number_or_word, read_object, write_json
from lm_experiments.rundir.names import LOG, RESULT, damaged
from lm_experiments.rundir.parse import build

# What a result says, and what is said of a run without one.
DONE, FAILED, INTERRUPTED, WAITING, RUNNING = "done", "failed", "interrupted", "waiting", "running"
# A trial whose value is in the worse half of its arm's, which goes on no more.
ENDED = "ended"
STATUSES = (DONE, FAILED, INTERRUPTED, ENDED)
# Nothing is left to train.
OVER = (DONE, ENDED)

# How a run that is done turned out.
OK, SPIKED, DEGRADED = "ok", "spiked", "degraded"
DIVERGED, NON_FINITE, FAILED_AT_INIT = "diverged", "non-finite", "failed-at-init"
# Outcomes whose loss is not averaged: they count against the arm.
BROKEN = (DIVERGED, NON_FINITE, FAILED_AT_INIT)
# What arms of a sweep can be given equally much of.
STEPS, TOKENS, FLOPS, SECONDS = EQUAL = ("steps", "tokens", "flops", "seconds")
# Outcomes that end a run before its last step.
CUT_SHORT = (NON_FINITE, FAILED_AT_INIT)


@dataclass(frozen=True)
class RunError:
    """What stopped a run: the kind of error, a sentence, and the log that has its traceback."""

    type: str
    message: str
    traceback: str | None = LOG

    def __str__(self) -> str:
        return " ".join(f"{self.type}: {self.message}".split())


@dataclass(frozen=True)
class Result:
    """What is known of a run that ended; None where it did not come to that.

    Attributes:
        status: one of `STATUSES`.
        outcome: of a run that is done: ok, spiked, degraded, diverged, non-finite, failed-at-init.
        outcome_step: the step at which its outcome showed.
        val_loss: nats per token over the whole validation set, by the last weights.
        average_val_loss: the same by the average of the weights, where one was kept.
        curve_loss: the last point of the validation curve, over ``curve_tokens`` of the set.
        best_val_loss: the lowest point of the curve, at ``best_step``; it is not selected.
        test_loss: nats per token over the test set, which is measured once, after training.
        accuracy: of a synthetic task, the share of the answers of the validation problems that are
            right, each after the right ones before it; ``test_accuracy`` is of the test problems.
        exact_match: the share of the validation problems whose answers are all right.
        chance: the accuracy of a guess.
        loss_spikes: how often the logged training loss rose by more than 1 nat above its lowest
            before; a spike lasts until it is back below that.
        initial_loss: nats per token of the first training batch.
        gradient_norm_at_init: the global norm of the first gradient.
        eval_context: tokens of context the loss was measured with.
        steps: optimizer steps made.
        parameters: by part, with ``total`` and ``non_embedding``.
        equal: what its steps were made equal in to those of the sweep's baseline.
        match: the rule by which feed-forwards were made comparable, within ``match_tolerance``.
        flops_per_token: of training, forward and backward.
        seconds: of training, validation not counted.
        wall_seconds: from the start of its last process to its result.
        cpu_seconds: of processors, all threads together, in that time, in the first process.
        learning_rate: the peak.
        strategy: single, ddp or fsdp.
        wandb: what the mirror in W&B became: online, offline, disabled or none.
        dirty: whether the code differed from its commit.
    """

    status: str
    arm: str
    seed: int
    config_hash: str | None = None
    data_hash: str | None = None
    outcome: str | None = None
    outcome_step: int | None = None
    val_loss: float | None = None
    val_tokens: int | None = None
    average_val_loss: float | None = None
    curve_loss: float | None = None
    curve_tokens: int | None = None
    best_val_loss: float | None = None
    best_step: int | None = None
    bits_per_byte: float | None = None
    perplexity: float | None = None
    test_loss: float | None = None
    test_tokens: int | None = None
    test_bits_per_byte: float | None = None
    accuracy: float | None = None
    exact_match: float | None = None
    test_accuracy: float | None = None
    test_exact_match: float | None = None
    chance: float | None = None
    loss_spikes: int | None = None
    initial_loss: float | None = None
    gradient_norm_at_init: float | None = None
    eval_context: int | None = None
    steps: int | None = None
    tokens: int | None = None
    equal: str | None = None
    parameters: dict[str, int] = field(default_factory=dict)
    ffn_width: int | None = None
    match: str | None = None
    match_tolerance: float | None = None
    flops_per_token: int | None = None
    train_flops: int | None = None
    seconds: float | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    tokens_per_second: float | None = None
    learning_rate: float | None = None
    device: str | None = None
    world_size: int | None = None
    strategy: str | None = None
    precision: str | None = None
    threads: int | None = None
    compiled: bool | None = None
    deterministic: bool | None = None
    peak_memory_bytes: int | None = None
    tokenizer_hash: str | None = None
    wandb: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    code_hash: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    machine: str | None = None
    error: RunError | None = None

    @property
    def reported_loss(self) -> float | None:
        """Nats per token on the test set where there is one, else on the validation set."""
        return self.val_loss if self.test_loss is None else self.test_loss

    @property
    def reported_tokens(self) -> int | None:
        """How many tokens `reported_loss` is over."""
        return self.val_tokens if self.test_loss is None else self.test_tokens

    @property
    def usable(self) -> bool:
        """Whether the loss may be averaged: trained to the end, and a finite number."""
        trained = self.status == DONE and self.outcome not in BROKEN
        return trained and self.val_loss is not None and math.isfinite(self.val_loss)


_FIELDS = frozenset(field.name for field in dataclasses.fields(Result))


def read_result(run_dir: Path) -> Result | None:
    """Return the run's result, None where there is none; `InputError` where it is damaged."""
    path = run_dir / RESULT
    try:
        values = read_object(path)
    except FileNotFoundError:
        return None
    try:
        return result_of_values(values)
    except InputError as error:
        raise damaged(path, str(error).rstrip(".")) from None


def write_result(run_dir: Path, result: Result) -> None:
    """Write the run's result, whole or not at all."""
    write_json(run_dir / RESULT, result_values(result))


def result_values(result: Result) -> dict[str, Any]:
    """Return a result as the values of JSON, as its file and its mirrors hold it."""
    values: dict[str, Any] = jsonable(dataclasses.asdict(result))
    return values


def result_of_values(values: Mapping[str, Any]) -> Result:
    """Return what `result_values` gave; `InputError` where it is no result."""
    if values.get("status") not in STATUSES:
        allowed = ", ".join(STATUSES)
        raise InputError(f"status is {values.get('status')!r}, not one of {allowed}.")
    known = {key: number_or_word(value) for key, value in values.items() if key in _FIELDS}
    return build(Result, known, "", {"error": _error})


def run_status(run_dir: Path) -> str:
    """Return what the run's result says of it, ``waiting`` where there is none."""
    result = read_result(run_dir)
    return result.status if result else WAITING


def is_done(run_dir: Path) -> bool:
    """Return whether a run was trained to its end; a result that cannot be read does not say so."""
    try:
        return run_status(run_dir) == DONE
    except (OSError, InputError):
        return False


def _error(values: Any) -> RunError | None:
    return None if values is None else build(RunError, values, "error")
