"""Checks before training: does an arm differ from the baseline, and does it start sanely?"""

from __future__ import annotations

import hashlib
import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_experiments.data import IGNORE_INDEX, TokenStore
from lm_experiments.errors import InputError
from lm_experiments.model import ModelConfig, Transformer, build_model, keyed_seed
from lm_experiments.model.init import multipliers
from lm_experiments.rundir.evaluations import CONTEXT, Evaluate
from lm_experiments.rundir.measures import MEASURES
from lm_experiments.study.plan import PlannedRun, corpus_of
from lm_experiments.training.config import RunConfig
from lm_experiments.training.devices import cpu_threads, find_device

# The size of the batch that is tried: shows most differences, and is cheap for any model.
SEQUENCES = 2
TOKENS = 64
# How much of the training text is searched for the end of a document.
SEARCHED_TOKENS = 1 << 22
# Weights that may be drawn to find arms without effect where no study asks for it: about a second.
SOUGHT_WEIGHTS = 10_000_000

Windows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Start:
    """How an arm starts, on the first windows of the baseline's first batch.

    Attributes:
        loss: nats per token before the first update.
        expected: what the initialisation should give, None where that is not known, or the targets
            are too few to show it, as the answers of a task are.
        gradients: the gradient norm of each block, and of the rest under "other".
        digest: a hash of every gradient with its name; -0.0 counts as 0.0.
    """

    loss: float
    expected: float | None
    gradients: dict[str, float]
    digest: str

    @property
    def fails(self) -> bool:
        """Whether the loss or a gradient is not finite, so that no training can follow."""
        return not all(map(math.isfinite, [self.loss, *self.gradients.values()]))

    def is_as(self, other: Start) -> bool:
        """Return whether the loss and all gradients are those of another arm; a NaN equals none."""
        numbers = [self.loss, *self.gradients.values()]
        same = (self.loss, self.digest) == (other.loss, other.digest)
        return same and not any(map(math.isnan, numbers))


def look_at_starts(arms: Mapping[str, PlannedRun]) -> dict[str, Start]:
    """Return how each arm starts, from one look at those with the same model, seed and text."""
    looks: dict[str, Start] = {}
    starts = {}
    for label, run in arms.items():
        config = run.config
        read = (config.data.corpus, config.tokenizer, min(config.data.batch_size, SEQUENCES))
        key = repr((config.model, config.seed, read))
        if key not in looks:
            looks[key] = look_at_start(label, run)
        starts[label] = looks[key]
    return starts


def look_at_start(label: str, run: PlannedRun) -> Start:
    """Compute one loss and its gradients; InputError where that raises, as training would."""
    try:
        return _start(run.config, _beginning(run.config, SEQUENCES))
    except Exception as error:
        raise InputError(
            f"Arm {label!r} cannot make its first step: {type(error).__name__}: {error}"
        ) from error


def first_batch(config: RunConfig, sequences: int) -> Windows:
    """Return so many windows of the first batch: inputs and targets, (sequences, length)."""
    train, length = corpus_of(config).train, config.model.context_length
    inputs, targets = train.training(length, config.data.batch_size, config.seed).batch(0)
    return inputs[:sequences], targets[:sequences]


def _beginning(config: RunConfig, sequences: int) -> Windows:
    """Return the beginning of each window of the first batch, as long as it has targets."""
    inputs, targets = first_batch(config, sequences)
    has_targets = bool((targets[:, :TOKENS] != IGNORE_INDEX).any())
    length = TOKENS if has_targets else targets.shape[1]
    return inputs[:, :length], targets[:, :length]


def _full_windows(config: RunConfig) -> Windows:
    """Return full-length windows, one of them across the end of a document where there is one.

    An attention window shows only beyond its length, and a document mask only across documents.
    """
    inputs, targets = first_batch(config, SEQUENCES)
    corpus, length = corpus_of(config), config.model.context_length
    if not isinstance(corpus.train, TokenStore):
        return inputs, targets
    text = np.asarray(corpus.train.tokens[:SEARCHED_TOKENS])
    ends = np.flatnonzero(text[1 : len(text) - length] == corpus.tokenizer.end_of_text_id)
    if not len(ends):
        return inputs, targets
    start = max(0, int(ends[0]) + 1 - length // 2)
    window = torch.from_numpy(text[start : start + length + 1].astype(np.int64))[None]
    return torch.cat((inputs, window[:, :-1])), torch.cat((targets, window[:, 1:]))


def _start(config: RunConfig, windows: Windows) -> Start:
    inputs, targets = windows
    model = build_model(config.model, config.seed)
    # What drops out is the same for all arms, as it is in training.
    torch.manual_seed(keyed_seed(config.seed, "step", 1, 0))
    model.dropout_key.set(keyed_seed(config.seed, "dropout", 1), 0, inputs.device)
    counted = int((targets != IGNORE_INDEX).sum())
    loss = model.loss(inputs, targets, config.model.z_loss) / counted
    loss.backward()  # type: ignore[no-untyped-call]
    tensors = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    squares: dict[str, float] = defaultdict(float)
    for name, gradient in tensors.items():
        words = name.split(".")
        part = f"block {words[1]}" if words[0] == "blocks" else "other"
        squares[part] += float(gradient.double().square().sum())
    norms = {part: math.sqrt(total) for part, total in squares.items()}
    expected = expected_loss(config.model, model) if counted == targets.numel() else None
    return Start(loss.item(), expected, norms, _digest(tensors))


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=32)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update((tensor + 0.0).flatten().numpy().data)
    return digest.hexdigest()


def expected_loss(config: ModelConfig, model: Transformer) -> float | None:
    """Return the initial loss that a normalised residual stream and a random head give.

    Logits then have variance ``d_model * var(head)``, and the loss is ln V plus half of it. Returns
    None where this does not hold: for norms ``none`` and ``dyt``, and with a tied head.
    """
    if config.norm.name in ("none", "dyt") or config.tie_embeddings:
        return None
    scale = multipliers(config).logits
    variance = config.d_model * model.head.weight.detach().var().item() * scale**2
    return math.log(config.vocab_size) + variance / 2


def check_primary(arms: Mapping[str, PlannedRun], primary: str) -> None:
    """Raise InputError where the runs of an arm do not have what a study compares them by."""
    for label, run in arms.items():
        tasks = run.config.data.is_task
        known = {"val_loss"} | {name for name, m in MEASURES.items() if m.answers and tasks}
        if corpus_of(run.config).val.bytes is not None:
            known.add("bits_per_byte")
        if primary not in known:
            raise InputError(
                f"study.primary={primary} is not measured on data={run.config.data.name} of arm "
                f"{label!r}; type study.primary={' or '.join(n for n in MEASURES if n in known)}."
            )


def check_evaluated(arms: Mapping[str, PlannedRun], evaluate: Evaluate | None) -> None:
    """Raise InputError where the runs of an arm could not be measured as a study asks."""
    asked = {each.kind for each in evaluate.asked} if evaluate else set()
    for label, run in arms.items():
        if asked and run.config.data.is_task:
            raise InputError(
                f"study.evaluate measures losses on text, and the runs of arm {label!r} read "
                f"data={run.config.data.name}; leave evaluate: out, or type "
                "data.task.test_largest= for longer problems."
            )
        if asked - {CONTEXT} and run.config.tokenizer.name == "none":
            raise InputError(
                f"study.evaluate asks for other texts or tasks, which tokenizer=none of arm "
                f"{label!r} cannot encode; type tokenizer=gpt2 or tokenizer=file, or ask for "
                "contexts: alone."
            )


def check_distinct(arms: Mapping[str, PlannedRun]) -> None:
    """Raise InputError where two arms are the same run, naming both."""
    seen: dict[str, str] = {}
    for label, run in arms.items():
        other = seen.setdefault(run.config_hash, label)
        if other != label:
            raise InputError(
                f"Arms {other!r} and {label!r} are the same run; take one out, or declare it in "
                "study.controls."
            )


def check_differences(
    arms: Mapping[str, PlannedRun], starts: Mapping[str, Start], references: Mapping[str, str]
) -> None:
    """Raise InputError where an arm starts and is optimised just as its reference, by arm."""
    for label, other in references.items():
        run, reference = arms[label], arms[other]
        if (
            label == other
            or run.config.control is not None
            or not starts[label].is_as(starts[other])
            or not _optimised_alike(run.config, reference.config)
        ):
            continue
        if _same_on_full_windows(run, reference):
            raise InputError(
                f"Arm {label!r} ({' '.join(run.config.arm_overrides) or 'no overrides'}) changes "
                f"nothing: on the same batch its loss and all its gradients are bit for bit those "
                f"of {other!r}; give it an override that does something, or declare it in "
                "study.controls."
            )


def find_unchanged(arms: Mapping[str, PlannedRun]) -> dict[str, str]:
    """Return the arms of a plain sweep that start and are optimised as an earlier one, and it.

    Only arms with equal parts are looked at. None are where that would take long, none that raises,
    as its run will say why, and none with code of the user's own, which could end this process.
    """
    alike: dict[Any, list[str]] = defaultdict(list)
    for label, run in arms.items():
        config = run.config
        if config.code_paths:
            continue
        optimised = (config.optimizer, config.schedule, config.trainer.max_steps)
        read = (config.data.corpus, config.data.batch_size, config.tokenizer)
        alike[repr((run.ledger, optimised, read, config.trainer.precision))].append(label)
    looked_at = [labels for labels in alike.values() if len(labels) > 1]
    if sum(arms[label].ledger.parameters for each in looked_at for label in each) > SOUGHT_WEIGHTS:
        return {}
    # Tensors this small are fastest on one thread.
    with cpu_threads(1):
        return {
            label: other for each in looked_at for label, other in _unchanged(arms, each).items()
        }


def _unchanged(arms: Mapping[str, PlannedRun], labels: Sequence[str]) -> dict[str, str]:
    """Return which of these arms, with equal parts, start as an earlier one does."""
    first: dict[float, str] = {}
    found = {}
    for label in labels:
        with suppress(Exception):
            other = first.setdefault(_loss_at_start(arms[label].config), label)
            if other != label and _same_on_full_windows(arms[label], arms[other]):
                found[label] = other
    return found


def _loss_at_start(config: RunConfig) -> float:
    inputs, targets = _beginning(config, 1)
    with torch.no_grad():
        model = build_model(config.model, config.seed).eval()
        return float(model.loss(inputs, targets))


def _same_on_full_windows(one: PlannedRun, other: PlannedRun) -> bool:
    windows = _full_windows(other.config)
    return _start(one.config, windows).is_as(_start(other.config, windows))


def warnings(config: RunConfig) -> list[str]:
    """Return the known pitfalls of this combination of choices."""
    return [text for applies, text in WARNINGS if applies(config)]


WARNINGS: Sequence[tuple[Callable[[RunConfig], bool], str]] = (
    (
        lambda c: (
            c.model.norm.name == "none"
            and c.model.ffn.name in ("glu", "bilinear", "swiglu", "geglu", "reglu")
            and c.model.n_layers >= 6
        ),
        "without norms a gated feed-forward overflows from about 8 layers on; from 6 it starts "
        "with a loss of millions",
    ),
    (
        lambda c: c.model.placement.name == "post" and c.schedule.warmup(c.trainer.max_steps) == 0,
        "post-norm without warm-up often stalls (Xiong et al. 2020)",
    ),
    (
        lambda c: (
            c.model.position.name == "sinusoidal"
            and c.model.init.name in ("cs336", "scaled", "mup")
            and not c.model.scale_embeddings
        ),
        "sinusoidal positions are at least as large as these embeddings, which Vaswani et al. 2017 "
        "scale up; model.scale_embeddings=true does",
    ),
    (
        lambda c: (
            c.model.placement.name == "reordered"
            and getattr(c.model.attention.options, "qk_norm", "none") == "none"
        ),
        "with the reordered placement and no QK-norm, gradients of the first layers grow with "
        "depth; OLMo 2 uses both: model.attention.qk_norm=rmsnorm",
    ),
    (
        lambda c: find_device(c).type == "cpu" and c.trainer.devices > (os.cpu_count() or 1),
        "more processes than cores share a CPU; trainer.devices up to its cores is faster",
    ),
)


def _optimised_alike(one: RunConfig, other: RunConfig) -> bool:
    """Return whether what shapes training beside the model is the same, as it takes effect."""
    if _beside_the_model(one) != _beside_the_model(other):
        return False
    return one.schedule == other.schedule or _factors(one) == _factors(other)


def _beside_the_model(config: RunConfig) -> list[Any]:
    data, trainer = config.data, config.trainer
    steps, precision = trainer.max_steps, trainer.precision
    return [config.optimizer, steps, data.corpus, data.batch_size, config.tokenizer, precision]


def _factors(config: RunConfig) -> list[float]:
    total = config.trainer.max_steps
    return [config.schedule.factor(step, total) for step in range(1, total + 1)]
