"""Batches of token windows: training batches by step, evaluation batches in order."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import Dataset

from lm_experiments.data.hashing import keyed_generator
from lm_experiments.data.order import WindowIds, permuted
from lm_experiments.data.sources import Batch
from lm_experiments.data.tokens import ShardedTokens, Tokens
from lm_experiments.errors import InputError

logger = logging.getLogger(__name__)

# Up to so many windows the order of an epoch is a table, of 32 MiB at most.
TABLE_WINDOWS = 1 << 22
IGNORE_INDEX = -100
"""The target of positions that do not count."""


def windows(token_count: int, context_length: int) -> int:
    """Return the number of non-overlapping windows of T inputs and T targets, (N - 1) // T.

    Raises `InputError` if there is none.
    """
    check_positive("model.context_length", context_length)
    if token_count <= context_length:
        shorter = max(token_count - 1, 0)
        remedy = f"type model.context_length={shorter} or less, or choose a longer corpus"
        raise InputError(
            f"the corpus has {token_count} tokens but model.context_length={context_length} "
            f"needs at least {context_length + 1}; "
            + (remedy if shorter else "choose a longer corpus")
        )
    return (token_count - 1) // context_length


class TrainingBatches(Dataset[Batch]):
    """Shuffled windows without end; the batch of a step is a function of (seed, step) alone.

    Every epoch is a permutation of all windows, drawn from (seed, "data", epoch); a batch may span
    two epochs. Up to `TABLE_WINDOWS` it is numpy's, above it is `permuted`. `tokens` has shape
    (N,).
    """

    def __init__(
        self, tokens: Tokens | ShardedTokens, context_length: int, batch_size: int, seed: int
    ) -> None:
        """Divide `tokens` into windows; raises `InputError` if there are too few."""
        check_positive("data.batch_size", batch_size)
        self.windows = windows(len(tokens), context_length)
        self.context_length = context_length
        self.batch_size = batch_size
        self.seed = seed
        self._tokens = _as_plain_array(tokens)
        self._orders: dict[int, WindowIds] = {}
        if self.windows > TABLE_WINDOWS:
            logger.info("the order of %d windows is computed, without a table", self.windows)

    def window_ids(self, step: int, rank: int = 0, world_size: int = 1) -> WindowIds:
        """Return the window indices of a rank's part of the batch, shape (batch / world,)."""
        share = share_of_batch(self.batch_size, step, rank, world_size)
        first = step * self.batch_size + rank * share
        epochs, offsets = np.divmod(np.arange(first, first + share), self.windows)
        ids = np.empty(share, dtype=np.int64)
        for epoch in range(epochs[0], epochs[-1] + 1):
            inside = epochs == epoch
            ids[inside] = self._shuffled(int(epoch), offsets[inside])
        return ids

    def batch(self, step: int, rank: int = 0, world_size: int = 1) -> Batch:
        """Return inputs and targets, int64 of shape (batch / world, context).

        The parts of the ranks are disjoint and together make the batch of a single rank. Raises
        `InputError` if the world size does not divide the batch size.
        """
        length = self.context_length
        starts = self.window_ids(step, rank, world_size) * length
        rows = np.empty((len(starts), length + 1), dtype=np.int64)
        for row, start in zip(rows, starts.tolist(), strict=True):
            row[:] = self._tokens[start : start + length + 1]
        return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())

    def __getitem__(self, step: int) -> Batch:
        return self.batch(step)

    def _shuffled(self, epoch: int, places: WindowIds) -> WindowIds:
        if self.windows > TABLE_WINDOWS:
            return permuted(places, self.windows, self.seed, epoch)
        return self._order(epoch)[places]

    def _order(self, epoch: int) -> WindowIds:
        if epoch not in self._orders:
            # Keep two epochs, for batches that span both; a permutation can be large.
            for old in list(self._orders)[:-1]:
                del self._orders[old]
            generator = keyed_generator(self.seed, "data", epoch)
            self._orders[epoch] = generator.permutation(self.windows)
        return self._orders[epoch]


class EvaluationBatches(Dataset[Batch]):
    """All windows in order, or a fixed part of them; each of the N - 1 targets counts once.

    The last window is padded with input 0 and target `IGNORE_INDEX`. The last batch may be
    smaller, and a rank may have fewer batches, even none. `tokens` has shape (N,).
    """

    def __init__(
        self,
        tokens: Tokens | ShardedTokens,
        context_length: int,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        most: int | None = None,
    ) -> None:
        """Take every world-th window from `rank` on; raises `InputError` below 2 tokens.

        `most` leaves evenly spaced windows of about so many targets, whatever the batches.
        """
        check_positive("model.context_length", context_length)
        check_positive("data.eval_batch_size", batch_size)
        check_rank(rank, world_size)
        if len(tokens) < 2:
            raise InputError(
                f"the corpus has {len(tokens)} tokens but evaluation needs at least 2; "
                "choose a longer corpus"
            )
        self.context_length = context_length
        self.batch_size = batch_size
        self._tokens = _as_plain_array(tokens)
        count = -(-(len(tokens) - 1) // context_length)
        self._windows = evenly_spaced(count, context_length, most)[rank::world_size]

    def __len__(self) -> int:
        return -(-len(self._windows) // self.batch_size)

    def __getitem__(self, index: int) -> Batch:
        """Return inputs and targets, int64 of shape (windows, context)."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        starts = self.starts(index)
        inputs = np.zeros((len(starts), self.context_length), dtype=np.int64)
        targets = np.full_like(inputs, IGNORE_INDEX)
        for row, start in enumerate(starts):
            piece = self._tokens[start : start + self.context_length + 1]
            inputs[row, : len(piece) - 1] = piece[:-1]
            targets[row, : len(piece) - 1] = piece[1:]
        return torch.from_numpy(inputs), torch.from_numpy(targets)

    def starts(self, index: int) -> WindowIds:
        """Return the position of the first input of each window of a batch, (windows,)."""
        first = index * self.batch_size
        return self._windows[first : first + self.batch_size] * self.context_length

    def __iter__(self) -> Iterator[Batch]:
        return map(self.__getitem__, range(len(self)))


def _as_plain_array(tokens: Tokens | ShardedTokens) -> Tokens | ShardedTokens:
    """Return a memory-mapped array as a plain array view, which slices faster."""
    return tokens if isinstance(tokens, ShardedTokens) else np.asarray(tokens)


def evenly_spaced(count: int, length: int, most: int | None) -> WindowIds:
    """Return all of `count` sequences of a length, or those that make about `most` positions."""
    taken = count if most is None else min(count, -(-most // length))
    chosen: WindowIds = np.arange(taken) * count // taken
    return chosen


def share_of_batch(batch_size: int, step: int, rank: int, world_size: int) -> int:
    """Return the sequences of a rank's part of a step's batch; `InputError` where it has none."""
    check_rank(rank, world_size)
    if step < 0:
        raise InputError(f"step {step} is negative; steps count from 0")
    if batch_size % world_size:
        raise InputError(
            f"data.batch_size={batch_size} cannot be shared by {world_size} devices; "
            f"type a multiple of {world_size}"
        )
    return batch_size // world_size


def check_positive(key: str, value: int) -> None:
    """Raise `InputError` for a value below 1."""
    if value < 1:
        raise InputError(f"{key}={value} must be at least 1; type {key}=1 or more")


def check_rank(rank: int, world_size: int) -> None:
    """Raise `InputError` for a rank that is not one of so many."""
    if not 0 <= rank < world_size:
        raise InputError(f"rank {rank} is not one of {world_size}; give 0 to {world_size - 1}")
