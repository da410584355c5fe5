"""The Lightning module: one optimizer step on one batch, exactly weighted by tokens."""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from lm_experiments.model import Transformer, keyed_seed
from lm_experiments.training.batches import Portion
from lm_experiments.training.config import RunConfig
from lm_experiments.training.history import History
from lm_experiments.training.metrics import AnswerScore, TokenLoss, bits_per_byte, perplexity
from lm_experiments.training.optimizers import clip_gradients
from lm_experiments.training.parallel import OneDevice, plain
from lm_experiments.training.world import SINGLE_PROCESS, World


class LanguageModel(LightningModule):
    """Trains a `Transformer` on batches of inputs, targets, and how many of the targets count.

    Inputs and targets have shape (batch, context_length). `val_bytes` and `test_bytes` are the
    sizes of the validation and the test text; where one is not known, it has no bits per byte.
    The curve is measured on `portion` of the validation text, the `last_pass` on all of it, and so
    is the one with the average of the weights (`of_average`).

    A batch is this process's part of what one optimizer step sees. It is cut into micro-batches
    here, and each adds its summed loss over the token count of all processes: the update does not
    depend on the cut, also where token counts differ. Nothing waits for the device between log
    intervals.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Transformer,
        micro_batch_size: int,
        val_bytes: int | None,
        world: World = SINGLE_PROCESS,
        test_bytes: int | None = None,
        portion: Portion | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.config = config
        self.model = model
        self.parallel = OneDevice(model)
        self.world = world
        self.micro_batch_size = micro_batch_size
        self.text_bytes = {"val": val_bytes, "test": test_bytes}
        self.portion = portion
        self.last_pass = False
        self.of_average = False
        self.held_out_loss = TokenLoss()
        self.answer_score = AnswerScore() if config.data.is_task else None
        self.history = History()
        self.newest: tuple[Tensor, ...] = ()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the configured optimizer; its rate is set at each step by `training_step`."""
        return self.config.resolved_optimizer.build(self.model)

    def training_step(self, batch: tuple[Tensor, Tensor, int], batch_idx: int) -> None:
        """Make one optimizer step; log where the interval ends.

        A batch in which nothing counts leaves the weights alone.
        """
        inputs, targets, tokens = batch
        step = self.global_step + 1
        optimizer: Any = self.optimizers()
        tokens = self.world.total(tokens)
        loss = self._accumulate(inputs, targets, step, max(1, tokens))
        norm = plain(clip_gradients(self.model.parameters(), self.config.optimizer.clip_norm))
        self.newest = (loss, norm)
        rate = self._set_rate(optimizer, step, on=tokens > 0)
        optimizer.step()
        optimizer.zero_grad()
        self._after_step(step, loss, norm, rate)

    def _accumulate(self, inputs: Tensor, targets: Tensor, step: int, tokens: int) -> Tensor:
        """Add the batch's gradients, a micro-batch at a time; return its mean loss per token.

        Loss and gradients are those of all processes together.
        """
        total = torch.zeros((), device=inputs.device)
        size, z_loss = self.micro_batch_size, self.config.model.z_loss
        for start in range(0, len(inputs), size):
            part = slice(start, start + size)
            self._seed(step, self.world.rank * len(inputs) + start, inputs.device)
            with self.parallel.part(last=start + size >= len(inputs)):
                loss = self.parallel.loss(inputs[part], targets[part], z_loss) / tokens
                self.manual_backward(loss)
            total += loss.detach()
        return self.world.add_up(total)

    def _seed(self, step: int, first: int, device: torch.device) -> None:
        """Make all randomness of a micro-batch depend on (seed, step, position in the batch).

        The global generator serves components of the user's own.
        """
        torch.manual_seed(keyed_seed(self.config.seed, "step", step, first))
        if self.config.model.dropout:
            key = keyed_seed(self.config.seed, "dropout", step)
            self.model.dropout_key.set(key, first, device)

    def _set_rate(self, optimizer: Any, step: int, on: bool) -> float:
        factor = self.config.schedule.factor(step, self.config.trainer.max_steps)
        rate = self.config.optimizer.lr * factor if on else 0.0
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        return rate

    def _after_step(self, step: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        trainer = self.config.trainer
        if step == 1 or step % trainer.log_every == 0 or step == trainer.max_steps:
            row = self.history.row(step, loss.item(), norm.item(), rate)
            row["tokens"] = step * self.config.tokens_per_step
            self.write(row, step)

    def is_finite(self) -> bool:
        """Whether all numbers so far, the newest step's included, are finite; waits for those."""
        newest = all(math.isfinite(number.item()) for number in self.newest)
        return newest and self.history.bad_step is None

    def on_train_start(self) -> None:
        """Start the clock by which tokens per second are counted."""
        self.history.start(self.global_step, self.config.tokens_per_step)

    def on_validation_start(self) -> None:
        """Stop the training clock."""
        self.history.pause()

    def on_validation_end(self) -> None:
        """Start the training clock again."""
        self.history.resume()

    def validation_step(self, batch: tuple[Tensor, Tensor, int], batch_idx: int) -> Tensor:
        """Add one batch to the loss of the set that is gone through.

        The loss of each target is returned for callbacks.
        """
        inputs, targets, tokens = batch
        if self.answer_score is None:
            losses, total = self.model.losses(inputs, targets)
        else:
            losses, total, right = self.model.answers(inputs, targets)
            self.answer_score.update(right, targets)
        self.held_out_loss.update(total, tokens)
        return losses

    @property
    def passing(self) -> Portion | None:
        """What a pass over the validation text goes through now, None for all of it."""
        return None if self.last_pass or self.of_average else self.portion

    def on_validation_epoch_end(self) -> None:
        """Log loss, perplexity and bits per byte of what was gone through."""
        row, tokens = self._measured("val")
        if self.of_average:
            self.history.average = row
            self._write_as("average", row)
            return
        if not self.last_pass:
            self.history.validated(self.global_step, row, tokens)
            self.write({**row, "val/tokens": tokens}, self.global_step)
        if self.passing is None:
            self.history.measured(row, tokens)
        if self.last_pass:
            self._write_as("whole", row)

    def _write_as(self, name: str, row: dict[str, float]) -> None:
        renamed = {key.replace("val/", f"{name}/"): value for key, value in row.items()}
        self.write(renamed, self.global_step)

    def test_step(self, batch: tuple[Tensor, Tensor, int], batch_idx: int) -> Tensor:
        """Add one batch, as in validation."""
        return self.validation_step(batch, batch_idx)

    def on_test_epoch_end(self) -> None:
        """Log loss, perplexity and bits per byte of the whole test set."""
        self.history.test, self.history.test_tokens = self._measured("test")
        self.write(self.history.test, self.global_step)

    def _measured(self, part: str) -> tuple[dict[str, float], int]:
        """Return what the set that was gone through came to, with its tokens."""
        found = self.held_out_loss
        loss, tokens = float(found.compute()), self.world.total(int(found.tokens))
        found.reset()
        row = {f"{part}/loss": loss, f"{part}/perplexity": perplexity(loss)}
        if self.answer_score is not None:
            row |= {f"{part}/{name}": v for name, v in self.answer_score.compute().items()}
            self.answer_score.reset()
        if (size := self.text_bytes[part]) is not None:
            # The bytes are those of the whole text, so a part counts as if it were all.
            covered = self.passing.whole if part == "val" and self.passing else tokens
            row[f"{part}/bits_per_byte"] = bits_per_byte(loss, covered, size)
        return row, tokens

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what the result needs of the part already trained."""
        checkpoint["history"] = self.history.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take up what the result needs of the part already trained."""
        self.history.load(checkpoint["history"])

    def write(self, row: dict[str, float], step: int) -> None:
        """Give a row of metrics to every logger."""
        for logger in self.loggers:
            logger.log_metrics(row, step)
