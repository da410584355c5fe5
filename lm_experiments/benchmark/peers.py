"""One training step of our Transformer, compared with public Llamas of the same shape."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm_experiments.benchmark.rounds import Measurement, measure, timed
from lm_experiments.benchmark.step import PlainStep, SummedLoss
from lm_experiments.errors import InputError
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.training.devices import best_micro_batch

OURS = "lm_experiments"
SHAPE = ModelConfig(
    d_model=256, n_layers=4, n_heads=8, context_length=256, vocab_size=4096, ffn_width=688
)
BATCH_SIZE = 16
NORM_EPS = 1e-5
# The accepted distance of the initial loss from ln V.
LOSS_TOLERANCE = 0.5


def peers(rounds: int) -> Measurement:
    """Time one step on the CPU in float32: forward, backward, clipping, fused AdamW.

    Ours uses micro-batches and a chunked loss, as in every run. The others are timed with the
    whole batch, as their users do, and with our micro-batches.

    Raises:
        InputError: if a model has another number of parameters than ours, or a wrong initial loss.
    """
    installed = [package for package in PEERS if importlib.util.find_spec(package)]
    return compare(SHAPE, BATCH_SIZE, rounds, installed)


def compare(shape: ModelConfig, batch_size: int, rounds: int, names: list[str]) -> Measurement:
    """Time our step beside those of the peers ``names``, at any shape; see `peers`."""
    micro = best_micro_batch(shape, batch_size, "cpu", "32-true")
    batch = _random_batch(shape, batch_size)
    ours = build_model(shape, seed=0)
    steps = {OURS: PlainStep(ours, ours.loss, micro)}
    for name in names:
        for size, label in ((batch_size, "whole batch"), (micro, f"micro-batches of {micro}")):
            model, loss = _build(name, shape)
            steps[f"{name}, {label}"] = PlainStep(model, loss, size)
    parameters = _check_sizes(steps)
    losses = _check_losses(steps, batch, shape.vocab_size)
    notes = [f"parameters: {parameters:,} in each model; first losses: {losses}"]
    if missing := [name for name in PEERS if name not in names]:
        notes.append(f"not installed: {', '.join(missing)}; type pip install -e '.[peers]'")
    title = f"One training step of {batch_size} x {shape.context_length} tokens, float32, eager."
    contestants = {name: timed(partial(step, *batch)) for name, step in steps.items()}
    timings = measure(contestants, rounds)
    return Measurement(title, timings, rounds, batch_size * shape.context_length, notes)


def _build(package: str, shape: ModelConfig) -> tuple[nn.Module, SummedLoss]:
    torch.manual_seed(0)
    model, logits = PEERS[package](importlib.import_module(package), shape)

    def _loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits(inputs).flatten(0, 1), targets.flatten(), reduction="sum")

    return model.train(), _loss


def _litgpt(package: Any, shape: ModelConfig) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    config = package.Config(
        name="benchmark",
        block_size=shape.context_length,
        n_layer=shape.n_layers,
        n_embd=shape.d_model,
        n_head=shape.n_heads,
        vocab_size=shape.vocab_size,
        padded_vocab_size=shape.vocab_size,
        norm_class_name="RMSNorm",
        norm_eps=NORM_EPS,
        parallel_residual=False,
        rotary_percentage=1.0,
        mlp_class_name="LLaMAMLP",
        intermediate_size=shape.width,
        bias=False,
    )
    model = package.GPT(config)
    model.apply(model._init_weights)
    return model, model


def _transformers(package: Any, shape: ModelConfig) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    config = package.LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.d_model,
        intermediate_size=shape.width,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads,
        max_position_embeddings=shape.context_length,
        rms_norm_eps=NORM_EPS,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = package.LlamaForCausalLM(config)
    return model, lambda tokens: model(input_ids=tokens).logits


# Public implementations of Llama by package. Each function gets the package and our `ModelConfig`;
# it returns the initialised model, and a function from tokens (batch, length) to logits (batch,
# length, vocabulary).
PEERS: dict[str, Callable[[Any, ModelConfig], tuple[nn.Module, Callable[[Tensor], Tensor]]]] = {
    "litgpt": _litgpt,
    "transformers": _transformers,
}


def _random_batch(shape: ModelConfig, batch_size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    size = (batch_size, shape.context_length + 1)
    tokens = torch.randint(shape.vocab_size, size, generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _check_sizes(steps: dict[str, PlainStep]) -> int:
    """Return the number of parameters that all models share."""
    sizes = {name: sum(p.numel() for p in s.model.parameters()) for name, s in steps.items()}
    for name, size in sizes.items():
        if size != sizes[OURS]:
            raise InputError(f"{name} has {size:,} parameters, not our {sizes[OURS]:,}.")
    return sizes[OURS]


def _check_losses(
    steps: dict[str, PlainStep], batch: tuple[Tensor, Tensor], vocab_size: int
) -> str:
    """Do the first step of each model; return the losses as text."""
    losses = {name: float(step(*batch)) for name, step in steps.items()}
    uniform = math.log(vocab_size)
    for name, loss in losses.items():
        if not abs(loss - uniform) < LOSS_TOLERANCE:
            raise InputError(
                f"{name} starts at a loss of {loss:.3f}, not near ln V = {uniform:.3f}: "
                "it is not the intended model."
            )
    return ", ".join(f"{loss:.3f}" for loss in losses.values()) + f" (ln V = {uniform:.3f})"
