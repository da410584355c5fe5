"""Noise over documents and seeds: worked values, and the coverage of the combined interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.noise import document_noise


def test_the_difference_is_that_of_the_tables_loss() -> None:
    # 100 tokens .2 lower and 10 tokens .1 higher each.
    assert document_noise([-20.0, 1.0], [100, 10]).difference == pytest.approx(-19 / 110)


def test_documents_of_equal_length_have_the_paired_t_interval() -> None:
    values = np.random.default_rng(2).normal(0.01, 0.05, 40)
    found = document_noise(values * 50, np.full(40, 50))
    theirs = stats.ttest_1samp(values, 0.0)
    assert found.difference == pytest.approx(values.mean())
    assert found.document_error == pytest.approx(stats.sem(values))
    assert (found.low, found.high) == pytest.approx(theirs.confidence_interval())
    assert (found.seed_error, found.degrees) == (None, 39)


def test_long_documents_weigh_as_many_tokens() -> None:
    # Cochran's variance of a ratio: residuals 2, 0 and -2 of 40 tokens, times 3 / 2.
    found = document_noise([2.0, 0.0, -2.0], [10, 20, 10])
    assert found.document_error == pytest.approx((1.5 * 8) ** 0.5 / 40)


def test_documents_of_one_cluster_are_one_draw() -> None:
    values, tokens = np.random.default_rng(3).normal(size=20), np.full(20, 10.0)
    copies = document_noise(np.repeat(values, 4), np.repeat(tokens, 4), list(np.arange(80) // 4))
    once = document_noise(values, tokens)
    assert copies.document_error == pytest.approx(once.document_error)
    assert document_noise(np.repeat(values, 4), np.repeat(tokens, 4)).document_error == (
        pytest.approx(once.document_error / 2, rel=0.05)
    )


def test_seeds_and_documents_both_enter() -> None:
    seeds, documents = np.array([-0.1, 0.0, 0.1]), np.linspace(-0.2, 0.2, 21)
    found = document_noise(seeds[:, None] + documents, np.ones(21))
    assert found.seed_error == pytest.approx(0.1 / 3**0.5)
    assert found.document_error == pytest.approx(stats.sem(documents))
    # Both effects add up exactly, so nothing is contained in both.
    assert found.error == pytest.approx(np.hypot(0.1 / 3**0.5, stats.sem(documents)))
    a, b = found.seed_error**2, found.document_error**2
    assert found.degrees == pytest.approx((a + b) ** 2 / (a**2 / 2 + b**2 / 20))


def test_noise_of_single_cells_is_counted_once() -> None:
    noise = np.random.default_rng(4).normal(size=(50, 400))
    found = document_noise(noise, np.ones(400))
    assert found.error == pytest.approx(1 / (50 * 400) ** 0.5, rel=0.15)


@pytest.mark.parametrize(
    ("values", "tokens", "clusters", "said"),
    [
        ([1.0, 2.0], [1.0], None, "shapes differ"),
        ([1.0, 2.0], [1.0, 1.0], ["a"], "shapes differ"),
        ([1.0, 2.0], [1.0, 0.0], None, "no tokens"),
        ([1.0, np.nan], [1.0, 1.0], None, "finite"),
        ([1.0, 2.0], [1.0, 1.0], ["a", "a"], "two documents or clusters, not 1"),
    ],
)
def test_what_cannot_be_is_refused(
    values: list[float], tokens: list[float], clusters: list[str] | None, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        document_noise(values, tokens, clusters)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "documents", "seed_sd", "document_sd", "cell_sd", "cluster"),
    [
        (3, 42, 0.01, 0.05, 0.05, 1),
        (3, 42, 0.001, 0.05, 0.05, 1),
        (5, 42, 0.02, 0.03, 0.1, 1),
        (5, 42, 0.05, 0.03, 0.1, 1),
        (5, 200, 0.01, 0.1, 0.1, 1),
        (5, 120, 0.01, 0.05, 0.1, 4),
        (1, 42, 0.0, 0.05, 0.05, 1),
    ],
)
def test_the_combined_interval_covers(
    seeds: int, documents: int, seed_sd: float, document_sd: float, cell_sd: float, cluster: int
) -> None:
    generator, covered, studies = np.random.default_rng(11), 0, 3000
    for _ in range(studies):
        tokens = generator.integers(50, 400, documents).astype(float)
        texts = document_sd * generator.normal(size=documents)
        texts += (
            document_sd
            * (cluster > 1)
            * np.repeat(generator.normal(size=documents // cluster), cluster)
        )
        rate = texts + seed_sd * generator.normal(size=(seeds, 1))
        rate = 0.02 + rate + cell_sd * generator.normal(size=(seeds, documents))
        labels = (np.arange(documents) // cluster).tolist()
        found = document_noise(rate * tokens, tokens, labels)
        covered += found.low <= 0.02 <= found.high
    assert 0.93 < covered / studies < 0.97
