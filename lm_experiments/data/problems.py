"""The problems of a task as batches: training from (seed, step), held-out parts fixed for all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from lm_experiments.data.batches import (
    IGNORE_INDEX,
    check_positive,
    check_rank,
    evenly_spaced,
    share_of_batch,
)
from lm_experiments.data.hashing import hash_of, keyed_generator
from lm_experiments.data.order import WindowIds
from lm_experiments.data.sources import Batch
from lm_experiments.data.tasks import TASKS, TaskConfig
from lm_experiments.errors import InputError

# Changed with what a seed draws, so that runs on other problems have other hashes.
VERSION = 1
OVERLAP = (
    "its problems are drawn apart from those of training, where a short one may occur by chance"
)


@dataclass(frozen=True)
class Problems:
    """One part of a task: train without end, or the held-out problems of val or test."""

    name: str
    config: TaskConfig
    part: str

    @cached_property
    def longest(self) -> int:
        """The inputs of its longest problem."""
        return TASKS[self.name](self.config).length(self.config.sizes(self.part)[-1]) - 1

    @property
    def positions(self) -> int:
        """The inputs that a whole pass goes through, without those that fill the context."""
        return self.config.held_out * self.longest

    @property
    def bytes(self) -> None:
        """Problems are no text."""

    @property
    def description(self) -> str:
        """How many problems of which sizes."""
        sizes = self.config.sizes(self.part)
        count = "without end" if self.part == "train" else f"{self.config.held_out:,} problems"
        return f"{count}, of sizes {sizes[0]} to {sizes[-1]}"

    def length(self, context_length: int) -> int:
        """Return the length of its sequences: the context's, or of its longest problem."""
        return max(context_length, self.longest)

    def check(self, context_length: int) -> None:
        """Raise `InputError` where a problem is longer than the context."""
        if self.longest > context_length:
            raise InputError(
                f"data={self.name} has problems of {self.longest} tokens and model.context_length="
                f"{context_length}; type model.context_length={self.longest} or more, or a smaller "
                "data.task.largest"
            )

    def training(self, context_length: int, batch_size: int, seed: int) -> ProblemBatches:
        """Return training batches, each drawn from (seed, step)."""
        return ProblemBatches(self, context_length, batch_size, seed)

    def once(
        self,
        context_length: int,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        most: int | None = None,
    ) -> HeldOutProblems:
        """Return a rank's share of the problems, which are the same for all seeds and arms."""
        return HeldOutProblems(self, context_length, batch_size, rank, world_size, most)

    def draw(self, generator: np.random.Generator, count: int, context_length: int) -> Batch:
        """Return problems as inputs and targets, int64 of shape (count, context).

        Only answers are targets. What follows a problem is filled with input 0.
        """
        task, sizes = TASKS[self.name](self.config), self.config.sizes(self.part)
        inputs = np.zeros((count, context_length), dtype=np.int64)
        targets = np.full_like(inputs, IGNORE_INDEX)
        for row, size in enumerate(generator.integers(sizes.start, sizes.stop, count).tolist()):
            ids, answers = task.problem(generator, size)
            inputs[row, : len(ids) - 1] = ids[:-1]
            targets[row, answers - 1] = ids[answers]
        return torch.from_numpy(inputs), torch.from_numpy(targets)


class ProblemBatches:
    """Training problems without end; the batch of a step is a function of (seed, step) alone."""

    def __init__(self, part: Problems, context_length: int, batch_size: int, seed: int) -> None:
        check_positive("data.batch_size", batch_size)
        part.check(context_length)
        self.part = part
        self.context_length = context_length
        self.batch_size = batch_size
        self.seed = seed

    def batch(self, step: int, rank: int = 0, world_size: int = 1) -> Batch:
        """Return a rank's part of the batch; the parts are disjoint and make the whole batch."""
        share = share_of_batch(self.batch_size, step, rank, world_size)
        generator = keyed_generator(self.seed, "task", step)
        inputs, targets = self.part.draw(generator, self.batch_size, self.context_length)
        own = slice(rank * share, (rank + 1) * share)
        return inputs[own], targets[own]


class HeldOutProblems:
    """The problems of a held-out part, or evenly spaced ones; a rank has every world-th.

    Their sequences are as long as the context, or as the longest problem where that is longer.
    """

    def __init__(
        self,
        part: Problems,
        context_length: int,
        batch_size: int,
        rank: int,
        world_size: int,
        most: int | None,
    ) -> None:
        check_positive("data.eval_batch_size", batch_size)
        check_rank(rank, world_size)
        self.context_length = part.length(context_length)
        self.batch_size = batch_size
        count = part.config.held_out
        self._chosen = evenly_spaced(count, part.longest, most)[rank::world_size]
        drawn = part.draw(keyed_generator("held out", part.part), count, self.context_length)
        self._inputs, self._targets = (tensor[self._chosen] for tensor in drawn)

    def __len__(self) -> int:
        return -(-len(self._chosen) // self.batch_size)

    def __getitem__(self, index: int) -> Batch:
        """Return inputs and targets of a batch, int64 of shape (problems, context)."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        own = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return self._inputs[own], self._targets[own]

    def starts(self, index: int) -> WindowIds:
        """Return where the problems of a batch begin in the whole part, (problems,)."""
        first = index * self.batch_size
        return self._chosen[first : first + self.batch_size] * self.context_length


def task_hash(name: str, config: TaskConfig) -> str:
    """Return the sha256 in hex of all that determines the problems, beside the seed."""
    return hash_of({"task": name, "version": VERSION, **dataclasses.asdict(config)})


def chance(name: str, config: TaskConfig) -> float:
    """Return the share of validation answers that a guess gets right, expected over sizes."""
    task, generator = TASKS[name](config), keyed_generator("chance")
    sizes: Sequence[int] = config.sizes("val")
    answers = [len(task.problem(generator, size)[1]) for size in sizes]
    return sum(count * task.guess(count) for count in answers) / sum(answers)
