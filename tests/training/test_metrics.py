"""The loss of a set is a sum over a count, exact in any cut, any type and at any size."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lm_experiments.training.metrics import TokenLoss, bits_per_byte, perplexity


def measured(*batches: list[float]) -> float:
    """Return the loss over batches given as the nll of each token."""
    metric = TokenLoss()
    for batch in batches:
        metric.update(torch.tensor(batch).sum(), len(batch))
    return float(metric.compute())


def test_batches_count_by_their_tokens() -> None:
    loss = measured([2.0] * 100, [4.0] * 10)
    assert loss == pytest.approx(240 / 110)
    assert perplexity(loss) == pytest.approx(8.8624, abs=5e-5)


def test_five_tokens_over_two_uneven_parts() -> None:
    assert measured([1.0, 1.0, 1.0], [1.0, 6.0]) == 2.0
    assert measured([1.0], [1.0, 1.0, 1.0, 6.0]) == 2.0


def test_processes_add_their_sums_and_their_counts() -> None:
    parts = {"loss_sum": torch.tensor([3.0, 7.0]), "tokens": torch.tensor([3, 2])}
    metric = TokenLoss()
    for name, values in parts.items():
        reduce = metric._reductions[name]
        assert callable(reduce)
        setattr(metric, name, reduce(values))
    metric._update_count = 1
    assert float(metric.compute()) == 2.0


@pytest.mark.parametrize("size", [1, 3, 8, 64])
def test_the_cut_into_batches_does_not_matter(size: int) -> None:
    nll = torch.rand(10, 16, generator=torch.Generator().manual_seed(0)) * 10
    valid = torch.arange(16) < torch.tensor([16, 1, 5, 16, 9, 16, 2, 16, 16, 3])[:, None]
    metric = TokenLoss()
    for start in range(0, 10, size):
        part = slice(start, start + size)
        metric.update((nll * valid)[part].sum(), valid[part].sum())
    assert int(metric.tokens) == 100
    assert float(metric.compute()) == pytest.approx(float((nll * valid).sum()) / 100, rel=1e-6)


def test_one_bad_token_among_many_is_weighed_and_not_infinite() -> None:
    loss = measured([1.0] * 999 + [110.0])
    assert loss == pytest.approx(1.109)
    assert perplexity(loss) == pytest.approx(3.0313, abs=1e-4)


def test_an_infinite_token_makes_the_loss_infinite_and_nan_makes_it_nan() -> None:
    assert measured([1.0, math.inf], [2.0]) == math.inf
    assert math.isnan(measured([1.0], [math.nan, 2.0]))


def test_many_small_batches_do_not_drift() -> None:
    metric = TokenLoss()
    metric.update(torch.tensor(2.0**24), 1)
    for _ in range(64):
        metric.update(torch.tensor(0.5), 1)
    assert float(metric.loss_sum) == 2.0**24 + 32


def test_narrow_losses_are_summed_in_float64() -> None:
    metric = TokenLoss()
    for _ in range(1000):
        metric.update(torch.tensor(3.0, dtype=torch.bfloat16), 1)
    assert float(metric.compute()) == 3.0


class Parent(nn.Module):
    """A model that holds the metric, as a Lightning module does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.metric = TokenLoss()


CASTS: list[Callable[[nn.Module], nn.Module]] = [
    nn.Module.half,
    nn.Module.bfloat16,
    lambda module: module.to(torch.bfloat16),
    lambda module: module.to(dtype=torch.float16),
    lambda module: module.to("cpu", torch.bfloat16),
]


@pytest.mark.parametrize("cast", CASTS)
def test_a_cast_of_the_model_leaves_the_sum_in_float64(
    cast: Callable[[nn.Module], nn.Module],
) -> None:
    parent = Parent()
    parent.metric.update(torch.tensor(2.0**24 + 2), 1)
    cast(parent)
    assert parent.layer.weight.dtype in (torch.float16, torch.bfloat16)
    assert parent.metric.loss_sum.dtype == torch.float64
    assert float(parent.metric.loss_sum) == 2.0**24 + 2
    parent.metric.reset()
    assert parent.metric.loss_sum.dtype == torch.float64
    assert parent.metric.tokens.dtype == torch.int64


def test_a_set_without_a_token_that_counts_is_an_error() -> None:
    metric = TokenLoss()
    metric.update(torch.tensor(0.0), 0)
    with pytest.raises(ValueError, match="no token that counts"):
        metric.compute()


def test_a_batch_without_a_token_that_counts_adds_nothing() -> None:
    assert measured([2.0, 4.0], [], [3.0]) == 3.0


def test_reset_forgets_everything() -> None:
    metric = TokenLoss()
    metric.update(torch.tensor(9.0), 3)
    metric.reset()
    metric.update(torch.tensor(4.0), 2)
    assert float(metric.compute()) == 2.0


def test_the_count_may_be_a_tensor() -> None:
    metric = TokenLoss()
    tokens: Tensor = torch.tensor(4)
    metric.update(torch.tensor(6.0), tokens)
    assert float(metric.compute()) == 1.5


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(0.0, 1.0), (1.0, math.e), (89.0, math.exp(89)), (709.0, math.exp(709))],
)
def test_perplexity_is_the_exponential(loss: float, expected: float) -> None:
    assert perplexity(loss) == expected


def test_perplexity_beyond_a_float_is_infinite() -> None:
    assert perplexity(710.0) == math.inf
    assert perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))


def test_bits_per_byte() -> None:
    # Four bytes a token, two bits a token.
    assert bits_per_byte(2 * math.log(2), tokens=100, text_bytes=400) == pytest.approx(0.5)
    assert bits_per_byte(math.log(256), tokens=7, text_bytes=7) == pytest.approx(8.0)
