"""Synthetic tasks: their problems, from what they are drawn, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lm_experiments.data import IGNORE_INDEX, DataConfig, PreparedData, chance, check_pair, prepare
from lm_experiments.data.hashing import keyed_generator
from lm_experiments.data.problems import Problems
from lm_experiments.data.tasks import TASKS, TaskConfig
from lm_experiments.errors import InputError
from lm_experiments.registry import choose

SYMBOLS = 12


def problem(name: str, size: int, seed: int = 0) -> tuple[list[int], list[int]]:
    """Return the ids of a problem, and those of its answers."""
    task = TASKS[name](TaskConfig(symbols=SYMBOLS, largest=8))
    ids, answers = task.problem(keyed_generator(seed), size)
    assert len(ids) == task.length(size)
    assert ids.max() < task.ids
    return ids.tolist(), ids[answers].tolist()


@pytest.mark.parametrize("size", [1, 4, 8])
def test_what_is_recalled_is_the_value_of_each_key(size: int) -> None:
    ids, answers = problem("mqar", size)
    pairs = dict(zip(ids[: 2 * size : 2], ids[1 : 2 * size : 2], strict=True))
    queries = ids[2 * size :: 2]
    assert sorted(queries) == sorted(pairs)
    assert answers == [pairs[key] for key in queries]
    assert max(pairs) < SYMBOLS <= min(pairs.values())


@pytest.mark.parametrize(("name", "step"), [("copy", 1), ("reverse", -1)])
def test_symbols_come_again_after_the_separator(name: str, step: int) -> None:
    ids, answers = problem(name, 6)
    assert ids[6] == SYMBOLS
    assert answers == ids[7:] == ids[:6][::step]


@pytest.mark.parametrize("seed", range(5))
def test_a_sum_is_that_of_its_numbers(seed: int) -> None:
    ids, answers = problem("addition", 4, seed)
    assert (ids[4], ids[9], ids[10:]) == (SYMBOLS, SYMBOLS + 1, answers)
    first, second, total = (
        sum(digit * SYMBOLS**place for place, digit in enumerate(digits))
        for digits in (ids[:4], ids[5:9], answers)
    )
    assert total == first + second


def test_a_repetition_is_known_from_its_second_symbol_on() -> None:
    ids, answers = problem("induction", 5)
    assert ids[:5] == ids[5:]
    assert len(set(ids)) == 5
    assert answers == ids[6:]


def part(which: str = "train", name: str = "copy", **options: Any) -> Problems:
    return Problems(name, TaskConfig(**options), which)


def test_only_answers_are_targets_and_each_is_the_next_token() -> None:
    inputs, targets = part(smallest=2, largest=6).training(16, 32, 0).batch(3)
    sizes = (targets != IGNORE_INDEX).sum(1)
    assert set(sizes.tolist()) == {2, 3, 4, 5, 6}
    for row, answers, size in zip(inputs, targets, sizes.tolist(), strict=True):
        own = answers[size : 2 * size]
        assert torch.equal(own, row[:size])
        assert torch.equal(row[size + 1 : 2 * size], own[:-1])
        assert not row[2 * size :].any()


def test_a_batch_depends_on_seed_and_step_and_the_ranks_share_it() -> None:
    batches = part().training(32, 8, seed=1)
    whole = batches.batch(5)
    assert torch.equal(whole[0], part().training(32, 8, seed=1).batch(5)[0])
    for other in (batches.batch(6), part().training(32, 8, seed=2).batch(5)):
        assert not torch.equal(whole[0], other[0])
    shares = [batches.batch(5, rank, 2) for rank in range(2)]
    for side in range(2):
        assert torch.equal(torch.cat([share[side] for share in shares]), whole[side])


def test_held_out_problems_are_fixed_and_shared_by_the_ranks() -> None:
    val = part("val", held_out=10)
    whole = torch.cat([val.once(32, 4)[index][0] for index in range(3)])
    assert len(whole) == 10
    ranks = [val.once(32, 8, rank, 2)[0][0] for rank in range(2)]
    assert torch.equal(torch.stack(ranks, 1).flatten(0, 1), whole)
    some = val.once(32, 8, most=2 * val.longest)
    assert torch.equal(some[0][0], whole[[0, 5]])
    assert not torch.equal(part("train").training(32, 10, 0).batch(0)[0], whole)


def test_test_problems_are_longer_than_any_other_and_than_the_context() -> None:
    test = part("test", largest=4, test_largest=8, held_out=64)
    test.check(16)
    _, targets = test.once(8, 64)[0]
    assert targets.shape == (64, 16)
    assert set((targets != IGNORE_INDEX).sum(1).tolist()) == {5, 6, 7, 8}


def test_chance_is_a_guess_among_what_has_not_come_again() -> None:
    # One pair is known; of two, the first answer is right half the time and the last one is left.
    assert chance("mqar", TaskConfig(smallest=1, largest=1)) == 1.0
    assert chance("mqar", TaskConfig(smallest=1, largest=2)) == pytest.approx((1 + 1.5) / 3)
    assert chance("addition", TaskConfig(symbols=10, smallest=1)) == pytest.approx(0.1)


def prepared(cache: Path, **options: Any) -> PreparedData:
    data = DataConfig("mqar", task=TaskConfig(**options))
    return prepare(data, choose("tokenizer", "symbols"), cache)


def test_a_task_is_prepared_without_a_file(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert found.tokenizer.vocab_size == 2 * 32 + 1
    assert (found.val.bytes, found.test) == (None, None)
    assert set(prepared(tmp_path, test_largest=20).held_out) == {"val", "test"}
    hashes = {prepared(tmp_path, **o).data_hash for o in ({}, {"largest": 8}, {"held_out": 9})}
    assert len(hashes) == 3
    assert found.data_hash == prepared(tmp_path).data_hash


def test_ids_are_text_as_numbers(tmp_path: Path) -> None:
    tokenizer = prepared(tmp_path).tokenizer
    ids = tokenizer.encode("3 17 4")
    assert ids.tolist() == [3, 17, 4]
    assert tokenizer.decode(ids) == " 3 17 4"
    assert np.issubdtype(ids.dtype, np.integer)
    for wrong in ("3 x", "99"):
        with pytest.raises(InputError, match="is no token id of this task; write numbers from 0"):
            tokenizer.encode(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"largest": 3}, "data.task.largest=3 must be at least 4 for data=mqar"),
        ({"largest": 40}, "data.task.symbols=32 is too few for data=mqar, which draws 40"),
        ({"test_largest": 40}, "type data.task.symbols=40 or more"),
        ({"test_largest": 16}, "must lie above data.task.largest=16; type data.task.test_largest"),
        ({"smallest": 0}, "data.task.smallest=0 must be at least 1"),
        ({"held_out": 0}, "type data.task.held_out=1 or more"),
    ],
)
def test_problems_that_there_are_not_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as error:
        DataConfig("mqar", task=TaskConfig(**options))
    assert message in str(error.value)


def test_what_belongs_to_text_or_to_tasks_is_refused_elsewhere() -> None:
    for options, message in (
        ({"name": "kjv", "task": TaskConfig(largest=9)}, "data.task.largest=9 is not read by"),
        ({"name": "copy", "val_fraction": 0.2}, "data.val_fraction=0.2 is not read"),
        ({"name": "copy", "test_fraction": 0.2}, "data.task.test_largest= for a test"),
        ({"name": "copy", "path": "a"}, "data.path='a' is not read by data=copy"),
    ):
        with pytest.raises(InputError) as error:
            DataConfig(**options)  # type: ignore[arg-type]
        assert message in str(error.value)
    for data, tokenizer in (("copy", "bpe"), ("kjv", "symbols")):
        with pytest.raises(InputError, match=f"tokenizer={tokenizer} does not go with data={data}"):
            check_pair(DataConfig(data), choose("tokenizer", tokenizer))
    with pytest.raises(InputError, match="data=copy has problems of 32 tokens and model"):
        part().check(31)
