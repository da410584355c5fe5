"""One training step of our Transformer, compared with public Llamas of the same shape."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm_experiments.benchmark.rounds import Measurement, device, measure, precision, timed
from lm_experiments.benchmark.step import PlainStep, SummedLoss
from lm_experiments.errors import InputError
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.training.allocation import keep_freed_memory
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
    """Time one step: forward, backward, clipping, fused AdamW; eager, and compiled.

    Ours uses micro-batches and a chunked loss, as in every run. The others are timed with the
    whole batch, as their users do, and with our micro-batches. All have freed memory kept, as we.

    Raises:
        InputError: if a model has another number of parameters than ours, or a wrong initial loss.
    """
    installed = [package for package in PEERS if importlib.util.find_spec(package)]
    keep_freed_memory()
    return compare(SHAPE, BATCH_SIZE, rounds, installed)


def compiled_peers(rounds: int) -> Measurement:
    """Time the same steps with all models compiled, ours block by block; see `peers`."""
    installed = [package for package in PEERS if importlib.util.find_spec(package)]
    keep_freed_memory()
    return compare(SHAPE, BATCH_SIZE, rounds, installed, compiled=True)


def compare(
    shape: ModelConfig, batch_size: int, rounds: int, names: list[str], compiled: bool = False
) -> Measurement:
    """Time our step beside those of the peers ``names``, at any shape; see `peers`."""
    micro = best_micro_batch(shape, batch_size, device().type, precision())
    batch = [part.to(device()) for part in random_batch(shape, batch_size)]
    ours = build_model(shape, seed=0).to(device())
    if compiled:
        ours.compile()
    steps = {OURS: PlainStep(ours, ours.loss, micro)}
    for name in names:
        for size in dict.fromkeys((batch_size, micro)):
            model, loss = _build(name, shape, compiled)
            label = "whole batch" if size == batch_size else f"micro-batches of {size}"
            steps[f"{name}, {label}"] = PlainStep(model, loss, size)
    parameters = _check_sizes(steps)
    losses = _check_losses(steps, batch, shape.vocab_size)
    notes = [f"parameters: {parameters:,} in each model; first losses: {losses}"]
    if missing := [name for name in PEERS if name not in names]:
        notes.append(f"not installed: {', '.join(missing)}; type pip install -e '.[peers]'")
    how = "compiled" if compiled else "eager"
    title = (
        f"One training step of {batch_size} x {shape.context_length} tokens, {precision()}, {how}."
    )
    contestants = {name: timed(partial(step, *batch)) for name, step in steps.items()}
    timings = measure(contestants, rounds)
    return Measurement(title, timings, rounds, batch_size * shape.context_length, notes)


def _build(package: str, shape: ModelConfig, compiled: bool) -> tuple[nn.Module, SummedLoss]:
    torch.manual_seed(0)
    model, logits = PEERS[package](importlib.import_module(package), shape)
    model.to(device())
    if compiled:
        model.compile()

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


def _x_transformers(
    package: Any, shape: ModelConfig
) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    layers = package.Decoder(
        dim=shape.d_model,
        depth=shape.n_layers,
        heads=shape.n_heads,
        attn_dim_head=shape.width_of_head,
        attn_flash=True,
        rotary_pos_emb=True,
        rotary_emb_dim=shape.width_of_head,
        use_rmsnorm=True,
        ff_swish=True,
        ff_glu=True,
        ff_no_bias=True,
        ff_mult=shape.width / shape.d_model,
    )
    model = package.TransformerWrapper(
        num_tokens=shape.vocab_size,
        max_seq_len=shape.context_length,
        attn_layers=layers,
        use_abs_pos_emb=False,
    )
    for module in model.modules():
        # Its option for no biases leaves those of the gate.
        if isinstance(module, package.x_transformers.GLU):
            module.proj.bias = None
    return model, model


# Public implementations of Llama by package. Each function gets the package and our `ModelConfig`;
# it returns the initialised model, and a function from tokens (batch, length) to logits (batch,
# length, vocabulary).
PEERS: dict[str, Callable[[Any, ModelConfig], tuple[nn.Module, Callable[[Tensor], Tensor]]]] = {
    "litgpt": _litgpt,
    "transformers": _transformers,
    "x_transformers": _x_transformers,
}


def random_batch(shape: ModelConfig, batch_size: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, each (batch_size, context_length), the same each time."""
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


def _check_losses(steps: dict[str, PlainStep], batch: Sequence[Tensor], vocab_size: int) -> str:
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
