"""What a run is trained and evaluated on: the tokens of a text, or the problems of a task."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from lm_experiments.data.order import WindowIds

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, int64 of shape (sequences, context); some targets are `IGNORE_INDEX`."""


class Endless(Protocol):
    """Training batches without end."""

    def batch(self, step: int, rank: int = 0, world_size: int = 1) -> Batch:
        """Return a rank's part of a step's batch, a function of (seed, step) alone."""


class Once(Protocol):
    """A rank's share of a held-out part, in batches."""

    context_length: int

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Batch: ...

    def starts(self, index: int) -> WindowIds:
        """Return where the sequences of a batch begin in the whole part, (sequences,)."""


class Source(Protocol):
    """One part of a corpus: training, validation or test."""

    @property
    def positions(self) -> int:
        """The inputs that a whole pass goes through."""

    @property
    def bytes(self) -> int | None:
        """The UTF-8 bytes of its text; None where that is not known, or it is none."""

    @property
    def description(self) -> str:
        """Its sizes in words."""

    def length(self, context_length: int) -> int:
        """Return the length of its sequences, the context's or what its longest needs."""

    def check(self, context_length: int) -> None:
        """Raise `InputError` where its sequences cannot be had with this context."""

    def training(self, context_length: int, batch_size: int, seed: int) -> Endless:
        """Return its training batches."""

    def once(
        self,
        context_length: int,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        most: int | None = None,
    ) -> Once:
        """Return a rank's share of a pass, over about `most` evenly spaced positions or all."""
