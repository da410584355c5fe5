"""How the parts of a model behave before and just after training begins, by arm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from lm_experiments.data import TrainingBatches
from lm_experiments.model import Transformer, build_model
from lm_experiments.rundir.diagnostics import GRADIENT, SCORE, STREAM
from lm_experiments.study.plan import PlannedRun, corpus_of
from lm_experiments.training.config import RunConfig
from lm_experiments.training.layer_statistics import (
    look_inside,
    looking_inside,
    norm_of,
    parts_of,
    read,
)
from lm_experiments.training.optimizers import clip_gradients

# Sequences of the first batches that are looked at.
SEQUENCES = 4
LOGITS = "logits_rms"


@dataclass(frozen=True)
class Look:
    """An arm's statistics by name and part, as a row of diagnostics, and its width.

    `later` are those after each further step, without gradients.
    """

    label: str
    width: int
    row: dict[str, float]
    later: tuple[dict[str, float], ...] = ()


def look_at(run: PlannedRun, steps: int = 0) -> Look:
    """Return gradients and activations on the first batch, and activations after ``steps`` more.

    Steps are made at the peak of the learning rate, on the first sequences of each batch, in
    float32 on the CPU.
    """
    config = run.config
    model = build_model(config.model, config.seed)
    rows = list(_rows(model, config, steps))
    return Look(config.arm, config.model.d_model, rows[0], tuple(rows[1:]))


def _rows(model: Transformer, config: RunConfig, steps: int) -> Iterator[dict[str, float]]:
    tokens, length = corpus_of(config).train.tokens, config.model.context_length
    batches = TrainingBatches(tokens, length, config.data.batch_size, config.seed)
    optimizer = config.optimizer.build(model)
    for group in optimizer.param_groups:
        group["lr"] = config.optimizer.lr * group.get("lr_scale", 1.0)
    for step in range(steps + 1):
        inputs, targets, *_ = batches.batch(step)
        inputs, targets = inputs[:SEQUENCES], targets[:SEQUENCES]
        loss = model.loss(inputs, targets, config.model.z_loss) / targets.numel()
        loss.backward()  # type: ignore[no-untyped-call]
        yield _row(model, inputs)
        clip_gradients(model.parameters(), config.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad()


def _row(model: Transformer, inputs: torch.Tensor) -> dict[str, float]:
    found = look_inside(model, inputs)
    with torch.no_grad(), looking_inside(model):
        found[LOGITS] = model(inputs).float().square().mean().sqrt()
    for part, own in parts_of(model).items():
        found[f"{GRADIENT}/{part}"] = norm_of([p.grad for p in own if p.grad is not None])
    return read(found)


def coordinates(looks: Sequence[Look]) -> dict[str, list[list[tuple[int, float]]]]:
    """Return, by statistic and step, its value at each width: a muP coordinate check.

    With muP the values do not depend on the width (Yang et al. 2022, appendix D.1).
    """
    checked: dict[str, list[list[tuple[int, float]]]] = {}
    for name, keys in (
        ("residual stream after the last block, RMS", _last(looks, STREAM)),
        ("largest attention logit of the last block", _last(looks, SCORE)),
        ("logits, RMS", [LOGITS] * len(looks)),
    ):
        steps = [[look.row for look in looks], *zip(*(look.later for look in looks), strict=True)]
        checked[name] = [
            sorted(
                (look.width, row.get(key, math.nan))
                for look, row, key in zip(looks, rows, keys, strict=True)
            )
            for rows in steps
        ]
    return checked


def _last(looks: Sequence[Look], statistic: str) -> list[str]:
    """Return the name of a statistic of each model's last block."""
    layers = [[key for key in look.row if key.startswith(f"{statistic}/")] for look in looks]
    return [keys[-1] if keys else "" for keys in layers]
