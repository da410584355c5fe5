"""How the parts of a model behave before and just after training begins, by arm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lm_experiments.rundir.diagnostics import GRADIENT, SCORE, STREAM
from lm_experiments.study.plain_training import PlainTraining
from lm_experiments.study.plan import PlannedRun
from lm_experiments.training.layer_statistics import (
    look_inside,
    looking_inside,
    norm_of,
    parts_of,
    read,
)

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
    training = PlainTraining(run.config)
    rows = [_row(training, step) for step in range(steps + 1)]
    return Look(run.config.arm, run.config.model.d_model, rows[0], tuple(rows[1:]))


def _row(training: PlainTraining, step: int) -> dict[str, float]:
    """Return what is seen at a step, and make it."""
    model = training.model
    inputs, targets = training.batch(step, SEQUENCES)
    training.backward(inputs, targets)
    found = look_inside(model, inputs)
    with torch.no_grad(), looking_inside(model):
        found[LOGITS] = model(inputs).float().square().mean().sqrt()
    for part, own in parts_of(model).items():
        found[f"{GRADIENT}/{part}"] = norm_of([p.grad for p in own if p.grad is not None])
    training.update()
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
