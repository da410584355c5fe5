"""Tiny models and batches, and the checks that every component must pass."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from lm_experiments.model import AXES, Choice, ModelConfig, Transformer, build_model, choose
from lm_experiments.registry import names

TINY = ModelConfig(d_model=32, n_layers=2, n_heads=2, context_length=16, vocab_size=65, d_ff=128)

EVERY_COMPONENT = [(axis, name) for axis in AXES for name in names(axis)]


def tiny_config(**changes: Any) -> ModelConfig:
    """Return the tiny configuration with changes; a component is given by its name."""
    chosen: dict[str, Any] = {
        key: _chosen(key, value) if key in AXES else value for key, value in changes.items()
    }
    return dataclasses.replace(TINY, **chosen)


def _chosen(axis: str, name: str) -> Choice:
    """Return the component at its defaults; muP tuned at the tiny width."""
    return choose(axis, name, {"base_width": TINY.d_model} if name == "mup" else {})


def tiny_arm(axis: str, name: str, **changes: Any) -> Transformer:
    """Return a tiny model that has component ``name`` on ``axis``."""
    return tiny_model(**{axis: name, **changes})


def tiny_model(seed: int = 0, **changes: Any) -> Transformer:
    """Return an initialised tiny model."""
    return build_model(tiny_config(**changes), seed)


def tiny_batch(sequences: int = 8, config: ModelConfig = TINY) -> tuple[Tensor, Tensor]:
    """Return random inputs and targets, each (sequences, context_length)."""
    tokens = torch.randint(config.vocab_size, (sequences, config.context_length + 1))
    return tokens[:, :-1], tokens[:, 1:]


def expected_initial_loss(config: ModelConfig) -> float:
    """Return ln V + d/(V + d), the loss of the cs336 scheme on a stream of unit size."""
    return math.log(config.vocab_size) + config.d_model / (config.vocab_size + config.d_model)


def embedding_gradient(model: Transformer, tokens: Tensor, at: int) -> Tensor:
    """Return the gradient of the logits at position ``at`` by each position's embedding."""
    seen: list[Tensor] = []

    def detach_output(module: Any, inputs: Any, output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[0]

    handle = model.embedding.register_forward_hook(detach_output)
    logits = model(tokens)
    handle.remove()
    (gradient,) = torch.autograd.grad((logits[:, at] * torch.randn(logits.shape[-1])).sum(), seen)
    return gradient


def reach(model: Transformer) -> int:
    """Return how many positions back a logit's dependence reaches through all layers."""
    length = model.config.context_length
    return sum((block.attention.window or length) - 1 for block in model.blocks)  # type: ignore[union-attr, operator]


def assert_causal(model: Transformer, tokens: Tensor, at: int) -> None:
    """Assert that the logits at ``at`` depend on the tokens within reach of it and no others."""
    gradient = embedding_gradient(model, tokens, at)
    first = max(0, at - reach(model))
    assert torch.count_nonzero(gradient[:, at + 1 :]) == 0
    assert torch.count_nonzero(gradient[:, :first]) == 0
    assert torch.count_nonzero(gradient[:, at]) > 0
    assert torch.count_nonzero(gradient[:, first]) > 0
