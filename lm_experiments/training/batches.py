"""The batches of a run, as Lightning asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader, Dataset, Sampler

from lm_experiments.data import IGNORE_INDEX, Endless, Once, PreparedData, Source
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

    def __init__(self, batches: Endless, world: World) -> None:
        self.batches = batches
        self.world = world

    def __getitem__(self, step: int) -> Any:
        return self.batches.batch(step, self.world.rank, self.world.size)


class EvenBatches(Dataset[Any]):
    """One rank's evaluation batches, padded to as many as rank zero has.

    A sharded model is gathered only when all ranks ask for it. The padding has no target that
    counts.
    """

    def __init__(self, own: Once, count: int) -> None:
        self.own = own
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index < len(self.own):
            return self.own[index]
        empty = torch.zeros((1, self.own.context_length), dtype=torch.int64)
        return empty, torch.full_like(empty, IGNORE_INDEX)


@dataclass(frozen=True)
class Portion:
    """The part of the validation text that the curve is measured on.

    Attributes:
        tokens: how many of its targets are asked for.
        whole: how many there are.
    """

    tokens: int
    whole: int


def portion_of(config: RunConfig, data: PreparedData) -> Portion | None:
    """Return what the curve of a run is measured on, None for the whole validation text."""
    asked, whole = config.trainer.val_tokens, data.val.positions
    return None if asked is None or asked >= whole else Portion(asked, whole)


def evaluated_tokens(config: RunConfig, data: PreparedData) -> tuple[int, int]:
    """Return over how many tokens a point of the curve is, and how many follow the last step."""
    whole, test = data.val.positions, data.test.positions if data.test else 0
    portion = portion_of(config, data)
    return (whole, test) if portion is None else (portion.tokens, whole + test)


class Batches(LightningDataModule):
    """Training batches from the current step on, and the validation and test sets."""

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
        batches = self.data.train.training(
            config.model.context_length, config.data.batch_size, config.seed
        )
        assert self.trainer is not None
        steps = StepsLeft(self.trainer, config.trainer.max_steps)
        part = Part(batches, self.world)
        return DataLoader(part, sampler=steps, batch_size=None, pin_memory=self.pin_memory)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return what a pass goes through, once and in order; of several processes each a part."""
        assert self.trainer is not None
        module: Any = self.trainer.lightning_module
        portion: Portion | None = module.passing
        return self._once(self.data.val, None if portion is None else portion.tokens)

    def test_dataloader(self) -> DataLoader[Any]:
        """Return the whole test set likewise; there must be one."""
        assert self.data.test is not None
        return self._once(self.data.test)

    def _once(self, part: Source, most: int | None = None) -> DataLoader[Any]:
        first = self.share(part, 0, most)
        own = self.share(part, self.world.rank, most) if self.world.rank else first
        batches = EvenBatches(own, len(first))
        return DataLoader(batches, batch_size=None, pin_memory=self.pin_memory)

    def share(self, part: Source, rank: int, most: int | None = None) -> Once:
        """Return a process's part of the validation or the test set."""
        config = self.config
        return part.once(
            config.model.context_length,
            config.data.eval_batch_size,
            rank,
            self.world.size,
            most,
        )

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Add how many targets count, while counting them costs no wait for the device."""
        inputs, targets = batch
        return inputs, targets, int((targets != IGNORE_INDEX).sum())
