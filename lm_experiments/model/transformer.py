"""The decoder-only transformer: embedding, blocks, final norm where there is one, head."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention, AttentionSizes
from .block import Block, Placement
from .config import ModelConfig
from .feedforward import FeedForward
from .init import initialise
from .linear import Linear
from .loss import sum_of_losses
from .norms import Norm
from .positions import Position, PositionSizes
from .registry import build


class Transformer(nn.Module):
    """A language model built from a `ModelConfig`; parameters are unset until initialised."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        placement: Placement = build("placement", config.placement)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.position = self._build_position()
        self.blocks = nn.ModuleList(self._build_block(placement) for _ in range(config.n_layers))
        self.final_norm = self._build_norm() if placement.final_norm else None
        self.head = Linear(config.d_model, config.vocab_size, role="head")
        self._tie()

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return the logits (batch, length, vocabulary) for ``tokens`` (batch, length).

        ``positions`` (length,) are 0, 1, ... where not given.
        """
        logits: Tensor = self.head(self.hidden(tokens, positions))
        return logits

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the summed loss in nats over the valid ``targets`` (see `sum_of_losses`)."""
        return sum_of_losses(self.hidden(tokens), self.head.weight, targets)

    def hidden(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return what the head reads: (batch, length, d_model)."""
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.position.embed(self.embedding(tokens), positions)
        if self.config.dropout:
            x = F.dropout(x, self.config.dropout, self.training)
        phases = self.position.phases(positions)
        for block in self.blocks:
            x = block(x, self.position, phases, positions)
        return x if self.final_norm is None else self.final_norm(x)

    def _tie(self) -> None:
        if self.config.tie_embeddings:
            self.head.weight = self.embedding.weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Transformer:
        # Where torch cannot change a parameter in place, as from the meta device, it makes a new
        # one for each module that holds it.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._tie()
        return self

    def _build_block(self, placement: Placement) -> Block:
        attention, ffn = self._build_attention(), self._build_ffn()
        return Block(placement, self._build_norm, attention, ffn, self.config.dropout)

    def _build_norm(self) -> Norm:
        norm: Norm = build("norm", self.config.norm, self.config.d_model)
        return norm

    def _build_position(self) -> Position:
        c = self.config
        sizes = PositionSizes(c.d_model, c.n_heads, c.head_width, c.context_length)
        position: Position = build("position", c.position, sizes)
        return position

    def _build_attention(self) -> Attention:
        c = self.config
        sizes = AttentionSizes(c.d_model, c.n_heads, c.head_width, c.bias)
        built: Attention = build("attention", c.attention, sizes)
        return built

    def _build_ffn(self) -> FeedForward:
        c = self.config
        built: FeedForward = build("ffn", c.ffn, c.d_model, c.width, c.bias)
        return built


def build_model(config: ModelConfig, seed: int) -> Transformer:
    """Build a model on the CPU with every parameter drawn from (seed, parameter name)."""
    model = sketch_model(config)
    model.to_empty(device="cpu")
    initialise(model, config, seed)
    return model


def sketch_model(config: ModelConfig) -> Transformer:
    """Build a model on the meta device: shapes, and no memory."""
    with torch.device("meta"):
        return Transformer(config)
