"""Writes what the parts of a model do while it trains, without any influence on the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from lm_experiments.rundir.diagnostics import GRADIENT, PREFIX, UPDATE
from lm_experiments.rundir.metrics import append_row, keep_rows
from lm_experiments.rundir.names import DIAGNOSTICS
from lm_experiments.training.layer_statistics import Found, look_inside, norm_of, parts_of, read
from lm_experiments.training.loggers import JsonlLogger
from lm_experiments.training.module import LanguageModel

# Sequences of the step's batch that go through the model once more.
SEQUENCES = 2


class Diagnostics(Callback):
    """Writes a row of ``diagnostics.jsonl`` at some of the logged steps, and sends it to W&B.

    Gradients and updates are those of the step; activations and attention are those of the weights
    after it, on the first sequences of its batch. Only rank zero has this callback: nothing in it
    involves other processes.

    Args:
        every: steps between rows, a multiple of the log interval.
    """

    def __init__(self, run_dir: Path, every: int) -> None:
        self.path = run_dir / DIAGNOSTICS
        self.every = every
        self.found: Found = {}
        self.before: dict[str, list[Tensor]] = {}

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Drop the rows of steps that are made again."""
        keep_rows(self.path, trainer.global_step)

    @torch.no_grad()
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: Any, optimizer: Any) -> None:
        """Take the norms of the gradients, and keep the weights, where a row is due."""
        if not self._due(trainer, trainer.global_step + 1):
            return
        parts = parts_of(pl_module.model)
        norms = {
            part: norm_of([p.grad for p in own if p.grad is not None])
            for part, own in parts.items()
            if any(p.grad is not None for p in own)
        }
        clipped = norm_of(norms.values()).clamp_min(torch.finfo(torch.float32).tiny)
        _, norm = pl_module.newest
        self.found = {f"{GRADIENT}/{part}": own * norm / clipped for part, own in norms.items()}
        self.before = {part: [p.detach().clone() for p in own] for part, own in parts.items()}

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, *args: Any
    ) -> None:
        """Write the row, where one is due; the device has been waited for."""
        if not self._due(trainer, trainer.global_step):
            return
        for part, own in parts_of(pl_module.model).items():
            before = self.before.pop(part)
            change = norm_of(torch._foreach_sub([p.detach() for p in own], before))
            self.found[f"{UPDATE}/{part}"] = change / norm_of(before)
        with trainer.precision_plugin.forward_context():
            self.found |= look_inside(pl_module.model, batch[0][:SEQUENCES])
        self._write(pl_module, trainer.global_step, read(self.found))

    def _due(self, trainer: Trainer, step: int) -> bool:
        return step == 1 or step % self.every == 0 or step == trainer.max_steps

    def _write(self, module: LanguageModel, step: int, row: dict[str, float]) -> None:
        append_row(self.path, {"step": step, **row})
        for logger in module.loggers:
            if not isinstance(logger, JsonlLogger):
                logger.log_metrics({PREFIX + key: value for key, value in row.items()}, step)
