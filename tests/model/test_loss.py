"""The chunked loss equals cross-entropy: values, gradients, ignored targets, low precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lm_experiments.model import loss as loss_module
from lm_experiments.model.loss import IGNORE_INDEX, chunk_length, sum_of_losses

VOCABULARY, WIDTH, BATCH, LENGTH = 13, 6, 3, 7


def problem(ignored: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden states, a head, and targets of which a share is ignored."""
    hidden = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    targets = torch.randint(VOCABULARY, (BATCH, LENGTH))
    targets[torch.rand(BATCH, LENGTH) < ignored] = IGNORE_INDEX
    return hidden, weight, targets


def reference(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = (hidden @ weight.T).float().flatten(0, -2)
    return F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")


def bent(hidden: Tensor, weight: Tensor, targets: Tensor, cap: float | None, z: float) -> Tensor:
    """Compute the loss with a cap and the z-loss from their formulas."""
    logits = (hidden @ weight.T).float().flatten(0, -2)
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    valid = targets.flatten() != IGNORE_INDEX
    loss = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")
    return loss + z * (logits.exp().sum(-1).log()[valid] ** 2).sum()


@pytest.fixture(params=[1, 2, 4, 7, 20, 21, 1000])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Hold so many positions' logits at once; 21 positions do not always divide into them."""
    positions: int = request.param
    monkeypatch.setitem(loss_module.CHUNK_LOGITS, "cpu", positions * VOCABULARY)
    monkeypatch.setattr(loss_module, "SHORTEST_CHUNK", 1)
    assert chunk_length(VOCABULARY, "cpu") == positions
    return positions


@pytest.mark.parametrize("ignored", [0.0, 0.4])
def test_values_and_gradients_are_those_of_cross_entropy(chunk: int, ignored: float) -> None:
    hidden, weight, targets = problem(ignored)
    expected = reference(hidden, weight, targets)
    wanted = torch.autograd.grad(expected / 5, (hidden, weight))
    found = sum_of_losses(hidden, weight, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found / 5, (hidden, weight)), wanted)


@pytest.mark.parametrize("ignored", [0.0, 0.4, 1.1])
def test_without_gradients_the_loss_is_the_same(chunk: int, ignored: float) -> None:
    hidden, weight, targets = problem(ignored)
    with torch.no_grad():
        found = sum_of_losses(hidden, weight, targets)
        torch.testing.assert_close(found, reference(hidden, weight, targets))


@pytest.mark.parametrize("ignored", [0.0, 0.4])
@pytest.mark.parametrize(("cap", "z"), [(2.0, 0.0), (None, 0.1), (2.0, 0.1)])
def test_cap_and_z_loss_are_their_formulas(
    chunk: int, ignored: float, cap: float | None, z: float
) -> None:
    hidden, weight, targets = problem(ignored)
    expected = bent(hidden, weight, targets, cap, z)
    wanted = torch.autograd.grad(expected / 5, (hidden, weight))
    found = sum_of_losses(hidden, weight, targets, cap, z)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found / 5, (hidden, weight)), wanted)
    with torch.no_grad():
        torch.testing.assert_close(sum_of_losses(hidden, weight, targets, cap, z), expected)
    assert abs(found.item() - reference(hidden, weight, targets).item()) > 1e-3


def test_where_everything_is_ignored_loss_and_gradients_are_zero(chunk: int) -> None:
    hidden, weight, targets = problem(ignored=1.1)
    found = sum_of_losses(hidden, weight, targets)
    assert found.item() == 0
    for gradient in torch.autograd.grad(found, (hidden, weight)):
        assert torch.count_nonzero(gradient) == 0


def test_ignored_positions_get_a_gradient_of_exactly_zero() -> None:
    hidden, weight, targets = problem(ignored=0.4)
    (gradient,) = torch.autograd.grad(sum_of_losses(hidden, weight, targets), hidden)
    assert torch.count_nonzero(gradient[targets == IGNORE_INDEX]) == 0
    assert gradient[targets != IGNORE_INDEX].abs().sum(-1).min() > 0


def test_a_frozen_body_still_trains_the_head() -> None:
    hidden, weight, targets = problem(ignored=0.4)
    (wanted,) = torch.autograd.grad(reference(hidden, weight, targets), weight)
    (found,) = torch.autograd.grad(sum_of_losses(hidden.detach(), weight, targets), weight)
    torch.testing.assert_close(found, wanted)


def test_a_token_of_nll_110_is_counted_as_110() -> None:
    hidden = torch.tensor([[110.0]], requires_grad=True)
    found = sum_of_losses(hidden, torch.tensor([[1.0], [0.0]]), torch.tensor([1]))
    assert found.item() == pytest.approx(110.0)
    assert torch.autograd.grad(found, hidden)[0].isfinite().all()


@pytest.mark.parametrize("gradients", [False, True])
def test_bfloat16_logits_have_their_softmax_in_float32(gradients: bool) -> None:
    hidden = torch.randn(64, 32).bfloat16().requires_grad_(gradients)
    weight = torch.randn(4096, 32).bfloat16()
    targets = torch.randint(4096, (64,))
    found = sum_of_losses(hidden, weight, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, reference(hidden, weight, targets), rtol=1e-5, atol=0)


@pytest.mark.parametrize("tokens", [1016, 1020, 1024])
def test_bfloat16_gradients_are_scaled_in_float32_and_rounded_once(tokens: int) -> None:
    hidden = torch.randn(64, 32).bfloat16().requires_grad_()
    weight = torch.randn(96, 32).bfloat16().requires_grad_()
    targets = torch.randint(96, (64,))
    summed = torch.autograd.grad(sum_of_losses(hidden, weight, targets), (hidden, weight))
    mean = torch.autograd.grad(sum_of_losses(hidden, weight, targets) / tokens, (hidden, weight))
    # 1/1020 itself is off by 0.4 % in bfloat16.
    for whole, part in zip(summed, mean, strict=True):
        assert torch.equal(part, (whole.float() / tokens).bfloat16())


def test_autocast_runs_the_products_in_bfloat16_and_gives_float32_gradients() -> None:
    hidden, weight, targets = problem(ignored=0.4)
    expected = reference(hidden, weight, targets)
    wanted = torch.autograd.grad(expected, (hidden, weight))
    with torch.autocast("cpu", torch.bfloat16):
        found = sum_of_losses(hidden, weight, targets)
    gradients = torch.autograd.grad(found, (hidden, weight))
    torch.testing.assert_close(found, expected, rtol=0.01, atol=0)
    torch.testing.assert_close(gradients, wanted, rtol=0.05, atol=0.05)
    assert found != expected  # or the products were not narrow at all


def test_a_chunk_fits_the_cache_unless_it_would_be_short() -> None:
    assert chunk_length(257, "cpu") * 257 <= 1 << 21
    assert chunk_length(4096, "cpu") == chunk_length(10**6, "cpu") == 1024
    assert chunk_length(4096, "a new device") >= 1024


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("cap", "z"), [(None, 0.0), (3.0, 0.1)])
def test_rows_that_begin_at_multiples_give_the_same_bits(
    dtype: torch.dtype, cap: float | None, z: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss_and_gradients() -> list[Tensor]:
        loss = sum_of_losses(hidden, weight, targets, cap, z)
        return [loss, *torch.autograd.grad(loss, (hidden, weight))]

    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        torch.randn(rows, 32, generator=generator).to(dtype).requires_grad_() for rows in (90, 257)
    )
    targets = torch.randint(257, (90,), generator=generator)
    expected = loss_and_gradients()
    strides: list[int] = []
    copied = Tensor.copy_

    def copy(into: Tensor, source: Tensor) -> Tensor:
        strides.append(into.stride(0))
        return copied(into, source)

    monkeypatch.setitem(loss_module.ROW_MULTIPLE, "cpu", 64)
    monkeypatch.setattr(Tensor, "copy_", copy)
    for wanted, found in zip(expected, loss_and_gradients(), strict=True):
        assert torch.equal(wanted, found)
    assert strides == [320]
