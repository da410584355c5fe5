"""Computing blocks again in the backward pass changes memory and time, and no bit of a gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_models import tiny_batch, tiny_model
from torch import Tensor

from lm_experiments.model import Transformer


def gradients(model: Transformer, inputs: Tensor, targets: Tensor) -> list[Tensor]:
    model.dropout_key.set(5, 0, torch.device("cpu"))
    return list(torch.autograd.grad(model.loss(inputs, targets), list(model.parameters())))


@pytest.mark.parametrize(
    "changes",
    [
        {"dropout": 0.3},
        {"position": "t5", "placement": "parallel"},
        {"position": "alibi", "attention_pattern": None, "document_mask": True, "end_of_text": 3},
    ],
    ids=["dropout", "a bias that all blocks share", "masks of documents"],
)
def test_gradients_are_the_same_bit_for_bit(changes: dict[str, Any]) -> None:
    inputs, targets = tiny_batch()
    kept, again = (tiny_model(**changes).train() for _ in range(2))
    again.recompute = True
    calls: list[object] = []
    again.blocks[0].register_forward_pre_hook(lambda *_: calls.append(None))
    expected = gradients(kept, inputs, targets)
    for wanted, found in zip(expected, gradients(again, inputs, targets), strict=True):
        assert torch.equal(wanted, found)
    assert len(calls) == 2
    # The dropout of another step is told apart by these very gradients.
    if kept.config.dropout:
        kept.dropout_key.set(6, 0, torch.device("cpu"))
        other = torch.autograd.grad(kept.loss(inputs, targets), list(kept.parameters()))
        assert not torch.equal(expected[0], other[0])


def test_a_block_keeps_its_input_alone() -> None:
    model = tiny_model(n_layers=6)
    inputs, targets = tiny_batch()
    kept = {}
    for model.recompute in (False, True):
        sizes: dict[int, int] = {}

        def _pack(tensor: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(_pack, lambda tensor: tensor):
            model.loss(inputs, targets)
        kept[model.recompute] = sum(sizes.values())
    assert kept[True] < kept[False] / 4


def test_evaluation_computes_each_block_once() -> None:
    model = tiny_model()
    model.recompute = True
    calls: list[object] = []
    model.blocks[0].register_forward_pre_hook(lambda *_: calls.append(None))
    with torch.no_grad():
        model.losses(*tiny_batch())
    assert len(calls) == 1
