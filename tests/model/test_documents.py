"""Packed documents do not attend to each other: results are the same as for each one alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from small_models import TINY
from torch import Tensor

from lm_experiments.model import IGNORE_INDEX, Choice, Transformer, build_model
from lm_experiments.model.documents import locate, restarted
from lm_experiments.registry import names

EOS = 64
# Of the sums of attention, which the kernel makes in another order where a document starts later.
TOLERANCE = {"atol": 2e-6, "rtol": 1e-5}

KINDS: list[dict[str, Any]] = [{"position": Choice(name)} for name in names("position")]
KINDS += [{"attention": Choice(name)} for name in names("attention") if name != "causal"]
KINDS += [{"position_pattern": ["rope", "none"]}, {"placement": Choice("parallel")}]


def masked(**changes: Any) -> Transformer:
    config = dataclasses.replace(TINY, document_mask=True, end_of_text=EOS, **changes)
    return build_model(config, 0)


def packed() -> tuple[Tensor, Tensor, Tensor]:
    """Return two documents, the first with its end, and both in one sequence."""
    first = torch.cat((torch.randint(EOS, (1, 6)), torch.tensor([[EOS]])), 1)
    second = torch.randint(EOS, (1, 9))
    return first, second, torch.cat((first, second), 1)


@torch.no_grad()
@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_packed_documents_have_the_logits_they_have_alone(changes: dict[str, Any]) -> None:
    model = masked(**changes)
    first, second, both = packed()
    together = model(both)
    torch.testing.assert_close(together[:, :7], model(first), **TOLERANCE)
    torch.testing.assert_close(together[:, 7:], model(second), **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_another_first_document_changes_the_second_by_exactly_nothing(
    changes: dict[str, Any],
) -> None:
    model = masked(**changes)
    _, _, both = packed()
    other = both.clone()
    other[:, :6] = (both[:, :6] + 1) % EOS
    assert torch.equal(model(both)[:, 7:], model(other)[:, 7:])
    assert not torch.equal(model(both)[:, :7], model(other)[:, :7])
    open_model = build_model(dataclasses.replace(TINY, **changes), 0)
    assert (open_model(other) - open_model(both))[:, 7:].abs().max() > 1e-3


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_gradients_are_those_of_the_documents_alone(changes: dict[str, Any]) -> None:
    model = masked(**changes)
    first, second, both = packed()
    targets = torch.randint(EOS, both.shape)
    model.loss(both, targets).backward()  # type: ignore[no-untyped-call]
    packed_gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    alone = model.loss(first, targets[:, :7]) + model.loss(second, targets[:, 7:])
    alone.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(gradients) == len(packed_gradients) == len(list(model.parameters()))
    torch.testing.assert_close(packed_gradients, gradients, atol=2e-5, rtol=1e-4)


def test_the_loss_of_the_second_document_has_no_gradient_in_the_first() -> None:
    model = masked(position=Choice("none"))
    _, _, both = packed()
    both[:, 7:] = both[:, 7:] % 20  # the second has tokens that the first has not
    both[:, :6] = both[:, :6] % 20 + 20
    targets = torch.full_like(both, IGNORE_INDEX)
    targets[:, 7:] = 1
    model.loss(both, targets).backward()  # type: ignore[no-untyped-call]
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert torch.count_nonzero(gradient[both[0, :7]]) == 0
    assert torch.count_nonzero(gradient[both[0, 7:]]) > 0


def test_positions_start_again_after_each_end() -> None:
    tokens = torch.tensor([[1, EOS, 2, 3, EOS, EOS, 4], [5, 6, 7, 8, 9, 10, EOS]])
    location = locate(tokens, end_of_text=EOS)
    assert location.positions.tolist() == [[0, 1, 0, 1, 2, 0, 0], [0, 1, 2, 3, 4, 5, 6]]
    assert location.query_positions.tolist() == list(range(7))


def test_positions_that_start_again_follow_the_ids() -> None:
    documents = torch.tensor([[4, 4, 4, 9, 9, 2]])
    assert restarted(documents).tolist() == [[0, 1, 2, 0, 1, 0]]


@torch.no_grad()
def test_documents_that_are_given_are_kept_apart_beside_those_that_end() -> None:
    model = masked()
    first, second, both = packed()
    given = torch.zeros_like(both)
    given[:, 12:] = 1
    logits = model(both, documents=given)
    torch.testing.assert_close(logits[:, :7], model(first), **TOLERANCE)
    torch.testing.assert_close(logits[:, 7:12], model(second[:, :5]), **TOLERANCE)
    torch.testing.assert_close(logits[:, 12:], model(second[:, 5:]), **TOLERANCE)
