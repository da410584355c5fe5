"""The order of windows: a table where it is small, else as good a permutation without one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from lm_experiments.data import TrainingBatches, batches
from lm_experiments.data.batches import TABLE_WINDOWS
from lm_experiments.data.hashing import keyed_generator
from lm_experiments.data.order import permuted

MANY = TABLE_WINDOWS + 12_345
# Keys and samples are fixed; of true draws one in ten thousand would be further off.
UNLIKELY = 1e-4


def test_the_size_alone_says_how_an_order_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "TABLE_WINDOWS", 999)
    text = np.arange(4001, dtype=np.uint16)
    for windows in (999, 1000):
        found = TrainingBatches(text[: 4 * windows + 1], 4, windows, 5)
        for epoch in range(2):
            table = keyed_generator(5, "data", epoch).permutation(windows)
            own = permuted(np.arange(windows), windows, 5, epoch)
            assert not np.array_equal(table, own)
            assert np.array_equal(found.window_ids(epoch), table if windows == 999 else own)


@pytest.mark.parametrize("windows", [1, 2, 3, 5, 64, 65, 1000, 4096, 4097, 100_003])
def test_every_window_is_read_once(windows: int) -> None:
    for epoch in range(3):
        found = permuted(np.arange(windows), windows, 0, epoch)
        assert found.dtype == np.int64
        assert np.array_equal(np.sort(found), np.arange(windows))


def test_a_part_is_that_of_the_whole() -> None:
    whole = permuted(np.arange(1000), 1000, 3, 1)
    assert np.array_equal(permuted(np.array([7, 999, 0]), 1000, 3, 1), whole[[7, 999, 0]])
    assert not np.array_equal(whole, permuted(np.arange(1000), 1000, 4, 1))
    assert not np.array_equal(whole, permuted(np.arange(1000), 1000, 3, 2))


def test_a_place_holds_each_window_equally_often() -> None:
    """Over keys, for places beside each other: alone, and by their difference."""
    windows, keys, bins = 1000, 4000, 20
    drawn = np.array([permuted(np.array([0, 1, 777]), windows, key, 0) for key in range(keys)])
    differences = (drawn[:, 1] - drawn[:, 0]) % windows
    for values in (*drawn.T, differences):
        counts = np.bincount(values * bins // windows, minlength=bins)
        assert chisquare(counts).pvalue > UNLIKELY


def test_a_large_order_is_spread_like_a_drawn_one() -> None:
    found = permuted(np.arange(400_000), MANY, 0, 0)
    assert len(np.unique(found)) == len(found)
    assert 0 <= found.min() <= found.max() < MANY
    assert chisquare(np.bincount(found * 100 // MANY, minlength=100)).pvalue > UNLIKELY
    for step in (1, 2, 16, 1024):
        difference = (found[step:] - found[:-step]) % MANY
        counts = np.bincount(difference * 100 // MANY, minlength=100)
        assert chisquare(counts).pvalue > UNLIKELY
    # The lowest bits too.
    assert chisquare(np.bincount(found % 64, minlength=64)).pvalue > UNLIKELY


def test_two_orders_agree_as_often_as_by_chance() -> None:
    """Fixed points, and places equal in two epochs, are about one each."""
    windows, epochs = 2000, 300
    orders = [permuted(np.arange(windows), windows, 0, epoch) for epoch in range(epochs)]
    fixed = np.mean([np.sum(found == np.arange(windows)) for found in orders])
    equal = np.mean([np.sum(a == b) for a, b in itertools.pairwise(orders)])
    # Four standard errors of a mean of Poisson draws.
    assert abs(fixed - 1) < 4 / epochs**0.5
    assert abs(equal - 1) < 4 / epochs**0.5
