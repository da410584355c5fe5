"""The batches of a run, as Lightning asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader, Sampler

from lm_experiments.data import IGNORE_INDEX, EvaluationBatches, PreparedData, TrainingBatches

from .config import RunConfig


class StepsLeft(Sampler[int]):
    """The steps from the one the trainer stands at; its length is that of the whole run.

    Lightning counts the batches of a resumed run from where it was, and compares with the length.
    """

    def __init__(self, trainer: Trainer, max_steps: int) -> None:
        self.trainer = trainer
        self.max_steps = max_steps

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.trainer.global_step, self.max_steps))

    def __len__(self) -> int:
        return self.max_steps


class Batches(LightningDataModule):
    """Training batches from the step the run stands at, and the whole validation set."""

    def __init__(self, config: RunConfig, data: PreparedData, pin_memory: bool) -> None:
        super().__init__()
        self.config = config
        self.data = data
        self.pin_memory = pin_memory

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the batch of each step that is left."""
        config = self.config
        batches = TrainingBatches(
            self.data.train.tokens,
            config.model.context_length,
            config.data.batch_size,
            config.seed,
        )
        assert self.trainer is not None
        steps = StepsLeft(self.trainer, config.trainer.max_steps)
        return DataLoader(batches, sampler=steps, batch_size=None, pin_memory=self.pin_memory)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the whole validation set, once and in order."""
        config = self.config
        batches = EvaluationBatches(
            self.data.val.tokens, config.model.context_length, config.data.eval_batch_size
        )
        return DataLoader(batches, batch_size=None, pin_memory=self.pin_memory)

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Add how many targets count, while counting them costs no wait for the device."""
        inputs, targets = batch
        return inputs, targets, int((targets != IGNORE_INDEX).sum())
