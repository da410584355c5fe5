"""What is looked at before anything trains: does an arm differ, and does it start sanely?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lm_experiments.data import TrainingBatches
from lm_experiments.model import ModelConfig, Transformer, build_model
from lm_experiments.model.init import multipliers
from lm_experiments.training.config import RunConfig
from lm_experiments.training.typed import ConfigError

from .plan import PlannedRun, corpus_of

# A start is judged on this much: enough to see a difference, little enough for any size.
SEQUENCES = 2
TOKENS = 64


@dataclass(frozen=True)
class Start:
    """How an arm starts, on the first windows of the baseline's first batch.

    Attributes:
        loss: nats per token before the first update.
        expected: what the initialisation should give, None where that is not known.
        gradients: the gradient norm of each block, and of the rest under "other".
        tensors: name -> gradient, to be compared with another arm's.
    """

    loss: float
    expected: float | None
    gradients: dict[str, float]
    tensors: dict[str, Tensor]

    @property
    def fails(self) -> bool:
        """Whether the loss or a gradient is not finite, so that no training can follow."""
        return not all(map(math.isfinite, [self.loss, *self.gradients.values()]))


def look_at_start(label: str, run: PlannedRun) -> Start:
    """Build an arm's model, and take one loss and its gradients; nothing is updated.

    Raises:
        ConfigError: where that raises; it would in training too.
    """
    try:
        return _start(run.config)
    except Exception as error:
        raise ConfigError(
            f"Arm {label!r} cannot make its first step: {type(error).__name__}: {error}"
        ) from error


def _start(config: RunConfig) -> Start:
    batches = TrainingBatches(
        corpus_of(config).train.tokens,
        config.model.context_length,
        config.data.batch_size,
        config.seed,
    )
    inputs, targets = (part[:SEQUENCES, :TOKENS] for part in batches.batch(0))
    model = build_model(config.model, config.seed)
    loss = model.loss(inputs, targets, config.model.z_loss) / targets.numel()
    loss.backward()  # type: ignore[no-untyped-call]
    tensors = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return Start(loss.item(), expected_loss(config.model, model), _norms(tensors), tensors)


def expected_loss(config: ModelConfig, model: Transformer) -> float | None:
    """Return the initial loss that a normalised stream and a random head give.

    Logits then have variance ``d_model * var(head)``, and the loss is ln V plus half of it.
    Without norms that fix the size of the stream, or with a head that is the embedding, this does
    not hold.
    """
    if config.norm.name in ("none", "dyt") or config.tie_embeddings:
        return None
    scale = multipliers(config).logits
    variance = config.d_model * model.head.weight.detach().var().item() * scale**2
    return math.log(config.vocab_size) + variance / 2


def check_distinct(arms: Mapping[str, PlannedRun]) -> None:
    """Refuse two arms that are the same run.

    Raises:
        ConfigError: naming both.
    """
    seen: dict[str, str] = {}
    for label, run in arms.items():
        other = seen.setdefault(run.config_hash, label)
        if other != label:
            raise ConfigError(
                f"Arms {other!r} and {label!r} are the same run; take one out, or declare it in "
                "study.controls."
            )


def check_differences(
    arms: Mapping[str, PlannedRun], starts: Mapping[str, Start], baseline: str
) -> None:
    """Refuse an arm that trains as the baseline does: same start, same optimisation.

    Raises:
        ConfigError: naming the arm.
    """
    reference = arms[baseline]
    for label, run in arms.items():
        if label == baseline or run.config.control is not None:
            continue
        same_start = _same(starts[label], starts[baseline])
        if same_start and _optimisation(run.config) == _optimisation(reference.config):
            raise ConfigError(
                f"Arm {label!r} ({' '.join(run.config.arm_overrides) or 'no overrides'}) changes "
                f"nothing: on the same batch its loss and all its gradients are bit for bit those "
                f"of {baseline!r}; give it an override that does something, or declare it in "
                "study.controls."
            )


def warnings(config: RunConfig) -> list[str]:
    """Return what is known to go wrong, or to mislead, with this combination of choices."""
    return [text for applies, text in WARNINGS if applies(config)]


def _gated(config: RunConfig) -> bool:
    return config.model.ffn.name in ("glu", "bilinear", "swiglu", "geglu", "reglu")


def _embedding_std_is_1(config: RunConfig) -> bool:
    return config.model.init.name in ("cs336", "scaled", "mup")


WARNINGS: Sequence[tuple[Callable[[RunConfig], bool], str]] = (
    (
        lambda c: c.model.norm.name == "none" and _gated(c) and c.model.n_layers >= 6,
        "without norms a gated feed-forward overflows from about 8 layers on; from 6 it starts "
        "with a loss of millions",
    ),
    (
        lambda c: c.model.placement.name == "post" and c.schedule.warmup(c.trainer.max_steps) == 0,
        "post-norm without warm-up often stalls (Xiong et al. 2020)",
    ),
    (
        lambda c: c.model.tie_embeddings and _embedding_std_is_1(c),
        "a tied head with embeddings of std 1 starts with logits sqrt(d_model) wide; "
        "init=gpt2 starts near ln V",
    ),
    (
        lambda c: c.model.position.name == "sinusoidal" and _embedding_std_is_1(c),
        "sinusoidal positions are as large as embeddings of std 1, which are not scaled up here "
        "as in Vaswani et al. 2017",
    ),
)


def _norms(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    parts: dict[str, list[Tensor]] = {}
    for name, gradient in tensors.items():
        words = name.split(".")
        parts.setdefault(f"block {words[1]}" if words[0] == "blocks" else "other", []).append(
            gradient
        )
    return {part: _norm(gradients) for part, gradients in parts.items()}


def _norm(gradients: Iterable[Tensor]) -> float:
    return math.sqrt(sum(float(g.double().square().sum()) for g in gradients))


def _same(one: Start, other: Start) -> bool:
    return (
        one.loss == other.loss
        and one.tensors.keys() == other.tensors.keys()
        and all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)
    )


def _optimisation(config: RunConfig) -> list[Any]:
    """Return all that shapes training beside the model, as it takes effect."""
    total = config.trainer.max_steps
    return [
        config.optimizer,
        [config.schedule.factor(step, total) for step in range(1, total + 1)],
        config.data.corpus,
        config.data.batch_size,
        config.tokenizer,
        config.trainer.precision,
    ]
