"""The batches of a run, as Lightning asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader, Dataset, Sampler

from lm_experiments.data import (
    IGNORE_INDEX,
    EvaluationBatches,
    PreparedData,
    TokenStore,
    TrainingBatches,
)
from lm_experiments.training.config import RunConfig
from lm_experiments.training.world import SINGLE_PROCESS, World


class StepsLeft(Sampler[int]):
    """The steps from the current one; its length is that of the whole run.

    Lightning counts the batches of a resumed run from where it stopped.
    """

    def __init__(self, trainer: Trainer, max_steps: int) -> None:
        self.trainer = trainer
        self.max_steps = max_steps

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.trainer.global_step, self.max_steps))

    def __len__(self) -> int:
        return self.max_steps


class Part(Dataset[Any]):
    """This rank's part of each training batch; the parts are disjoint."""

    def __init__(self, batches: TrainingBatches, world: World) -> None:
        self.batches = batches
        self.world = world

    def __getitem__(self, step: int) -> Any:
        return self.batches.batch(step, self.world.rank, self.world.size)


class EvenBatches(Dataset[Any]):
    """One rank's evaluation batches, padded to as many as rank zero has.

    A sharded model is gathered only when all ranks ask for it. The padding has no target that
    counts.
    """

    def __init__(self, own: EvaluationBatches, count: int) -> None:
        self.own = own
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index < len(self.own):
            return self.own[index]
        empty = torch.zeros((1, self.own.context_length), dtype=torch.int64)
        return empty, torch.full_like(empty, IGNORE_INDEX)


class Batches(LightningDataModule):
    """Training batches from the current step on, and the whole validation and test sets."""

    def __init__(
        self, config: RunConfig, data: PreparedData, pin_memory: bool, world: World = SINGLE_PROCESS
    ) -> None:
        super().__init__()
        self.config = config
        self.data = data
        self.pin_memory = pin_memory
        self.world = world

    def train_dataloader(self) -> DataLoader[Any]:
        """Return this process's part of the batch of each step that is left."""
        config = self.config
        batches = TrainingBatches(
            self.data.train.tokens,
            config.model.context_length,
            config.data.batch_size,
            config.seed,
        )
        assert self.trainer is not None
        steps = StepsLeft(self.trainer, config.trainer.max_steps)
        part = Part(batches, self.world)
        return DataLoader(part, sampler=steps, batch_size=None, pin_memory=self.pin_memory)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the whole validation set, once and in order; of several processes each a part."""
        return self._whole(self.data.val)

    def test_dataloader(self) -> DataLoader[Any]:
        """Return the whole test set likewise; there must be one."""
        assert self.data.test is not None
        return self._whole(self.data.test)

    def _whole(self, store: TokenStore) -> DataLoader[Any]:
        batches = EvenBatches(self.share(store, self.world.rank), len(self.share(store, 0)))
        return DataLoader(batches, batch_size=None, pin_memory=self.pin_memory)

    def share(self, store: TokenStore, rank: int) -> EvaluationBatches:
        """Return a process's part of the validation or the test set."""
        config = self.config
        return EvaluationBatches(
            store.tokens,
            config.model.context_length,
            config.data.eval_batch_size,
            rank,
            self.world.size,
        )

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Add how many targets count, while counting them costs no wait for the device."""
        inputs, targets = batch
        return inputs, targets, int((targets != IGNORE_INDEX).sum())
