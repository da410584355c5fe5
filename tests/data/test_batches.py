"""Windows, training batches by step, and evaluation batches that count every target once."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from lm_experiments.data import IGNORE_INDEX, EvaluationBatches, TrainingBatches, windows
from lm_experiments.data.tokens import Tokens
from lm_experiments.errors import InputError


def tokens(count: int) -> Tokens:
    return np.arange(count, dtype=np.uint16)


@pytest.mark.parametrize(
    ("count", "context", "expected"), [(8, 4, 1), (9, 4, 2), (5, 4, 1), (2, 1, 1), (13, 4, 3)]
)
def test_windows_do_not_overlap(count: int, context: int, expected: int) -> None:
    assert windows(count, context) == expected


@pytest.mark.parametrize(
    ("count", "remedy"), [(8, "model.context_length=7 or less"), (1, "longer")]
)
def test_a_corpus_no_longer_than_the_context_is_refused(count: int, remedy: str) -> None:
    with pytest.raises(InputError, match=rf"{count} tokens but model\.context_length=8 needs"):
        windows(count, 8)
    with pytest.raises(InputError, match=remedy):
        TrainingBatches(tokens(count), 8, 1, 0)


def test_targets_are_the_next_tokens_and_the_last_token_is_one() -> None:
    inputs, targets = TrainingBatches(tokens(9), 4, 2, 0).batch(0)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.shape == targets.shape == (2, 4)
    assert torch.equal(targets, inputs + 1)
    assert sorted(inputs.flatten().tolist()) == list(range(8))
    assert targets.max() == 8


@pytest.mark.parametrize("batch_size", [1, 3, 10, 25])
def test_each_epoch_shows_every_window_once(batch_size: int) -> None:
    batches = TrainingBatches(tokens(41), 4, batch_size, 0)
    steps = -(-30 // batch_size)
    stream = np.concatenate([batches.window_ids(step) for step in range(steps)])
    epochs = stream[:30].reshape(3, 10)
    assert np.array_equal(np.sort(epochs), np.tile(np.arange(10), (3, 1)))
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(epochs[0], np.arange(10))


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    batches = TrainingBatches(tokens(401), 4, 8, 3)
    straight = [batches.window_ids(step).tolist() for step in range(40)]
    again = TrainingBatches(tokens(401), 4, 8, 3)
    for step in (39, 0, 25, 12, 13):
        assert again.window_ids(step).tolist() == straight[step]
    other = TrainingBatches(tokens(401), 4, 8, 4)
    assert [other.window_ids(step).tolist() for step in range(40)] != straight


def test_another_process_draws_the_same_batch() -> None:
    program = """
import numpy as np
from lm_experiments.data import TrainingBatches
print(TrainingBatches(np.arange(401, dtype=np.uint16), 4, 8, 3).window_ids(30).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    expected = TrainingBatches(tokens(401), 4, 8, 3).window_ids(30).tolist()
    assert done.stdout.strip() == str(expected)


def test_the_order_stays_what_it_was() -> None:
    order = [6, 3, 5, 1, 9, 2, 0, 8, 4, 7]
    assert TrainingBatches(tokens(41), 4, 10, 0).window_ids(0).tolist() == order


def test_few_epoch_orders_are_kept() -> None:
    batches = TrainingBatches(tokens(41), 4, 25, 0)
    for step in range(20):
        batches.batch(step)
        assert len(batches._orders) <= 2


@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
def test_ranks_share_the_batch_without_overlap(world_size: int) -> None:
    batches = TrainingBatches(tokens(41), 4, 6, 0)
    for step in range(5):
        parts = [batches.batch(step, rank, world_size) for rank in range(world_size)]
        inputs, targets = batches[step]
        assert torch.equal(torch.cat([part[0] for part in parts]), inputs)
        assert torch.equal(torch.cat([part[1] for part in parts]), targets)


def test_bad_requests_are_refused() -> None:
    batches = TrainingBatches(tokens(41), 4, 6, 0)
    with pytest.raises(InputError, match=r"data\.batch_size=6 cannot be shared by 4 devices"):
        batches.batch(0, 0, 4)
    with pytest.raises(InputError, match="rank 2 is not one of 2"):
        batches.batch(0, 2, 2)
    with pytest.raises(InputError, match="step -1 is negative"):
        batches.batch(-1)
    with pytest.raises(InputError, match=r"data\.batch_size=0 must be at least 1"):
        TrainingBatches(tokens(41), 4, 0, 0)
    with pytest.raises(InputError, match=r"model\.context_length=0 must be at least 1"):
        TrainingBatches(tokens(41), 0, 1, 0)


def evaluated(count: int, context: int, size: int, world_size: int) -> list[list[int]]:
    """The targets that count, with the input before each, over all ranks."""
    pairs = []
    for rank in range(world_size):
        batches = EvaluationBatches(tokens(count), context, size, rank, world_size)
        listed = list(batches)
        assert len(listed) == len(batches)
        for inputs, targets in listed:
            assert inputs.shape == targets.shape
            assert 1 <= inputs.shape[0] <= size
            assert inputs.shape[1] == context
            assert inputs.dtype == targets.dtype == torch.int64
            counted = targets != IGNORE_INDEX
            assert counted.any(dim=1).all()
            assert (inputs[~counted] == 0).all()
            pairs += torch.stack([inputs[counted], targets[counted]], dim=1).tolist()
    return pairs


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize(("count", "context"), [(41, 4), (42, 4), (44, 4), (5, 8), (2, 1), (30, 1)])
def test_every_target_counts_once(count: int, context: int, size: int, world_size: int) -> None:
    pairs = evaluated(count, context, size, world_size)
    assert sorted(pairs) == [[token, token + 1] for token in range(count - 1)]


def test_evaluation_is_in_order_on_one_rank() -> None:
    assert evaluated(30, 4, 3, 1) == [[token, token + 1] for token in range(29)]


def test_a_rank_may_have_nothing_to_evaluate() -> None:
    batches = EvaluationBatches(tokens(9), 4, 2, rank=2, world_size=3)
    assert len(batches) == 0
    assert list(batches) == []


def test_batches_out_of_range_are_refused() -> None:
    batches = EvaluationBatches(tokens(9), 4, 2)
    with pytest.raises(IndexError):
        batches[1]
    with pytest.raises(IndexError):
        batches[-1]


def test_bad_evaluations_are_refused() -> None:
    with pytest.raises(InputError, match="has 1 tokens but evaluation needs at least 2"):
        EvaluationBatches(tokens(1), 4, 2)
    with pytest.raises(InputError, match=r"data\.eval_batch_size=0"):
        EvaluationBatches(tokens(9), 4, 0)
    with pytest.raises(InputError, match="rank 3 is not one of 3"):
        EvaluationBatches(tokens(9), 4, 2, 3, 3)
