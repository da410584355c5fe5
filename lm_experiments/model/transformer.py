"""The decoder-only transformer: embedding, blocks, final norm where there is one, head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm_experiments.model.attention import Attention, AttentionSizes
from lm_experiments.model.backends import Scope, scope
from lm_experiments.model.block import Block, ParallelBlock, Placement
from lm_experiments.model.cache import Cache
from lm_experiments.model.config import ModelConfig
from lm_experiments.model.documents import Location, locate
from lm_experiments.model.feedforward import FeedForward
from lm_experiments.model.init import initialise, multipliers
from lm_experiments.model.linear import Linear
from lm_experiments.model.loss import sum_of_losses
from lm_experiments.model.norms import Norm
from lm_experiments.model.positions import NoPosition, Position, PositionSizes
from lm_experiments.registry import NoOptions, build

NO_POSITION = NoPosition(NoOptions(), PositionSizes(1, 1, 1, 1))


class Transformer(nn.Module):
    """A language model built from a `ModelConfig`; parameters are unset until initialised."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.multipliers = multipliers(config)
        placement: Placement = build("placement", config.placement)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.embedding_norm = self._build_norm() if config.embedding_norm else None
        self.position = self._build_position()
        self.blocks = nn.ModuleList(
            self._build_block(placement, reach == "local") for reach in config.layer_reaches
        )
        self.final_norm = self._build_norm() if placement.final_norm else None
        self.head = Linear(config.d_model, config.vocab_size, role="head")
        self._tie()
        self._check_patterns()

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Return the logits (batch, length, vocabulary) for ``tokens`` (batch, length).

        The other arguments are those of `hidden`.
        """
        return self.logits(self.hidden(tokens, positions, documents, cache))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., vocabulary) of what `hidden` returns."""
        logits: Tensor = self.head(hidden)
        cap = self.config.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def loss(self, tokens: Tensor, targets: Tensor, z_loss: float = 0.0) -> Tensor:
        """Return the summed loss in nats over the valid ``targets`` (see `sum_of_losses`).

        Training adds ``z_loss`` times the summed squares of the log-partition; validation does not.
        """
        hidden, cap = self.hidden(tokens), self.config.logit_softcap
        return sum_of_losses(hidden, self.head.weight, targets, cap, z_loss)

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Return what the head reads: (batch, length, d_model).

        Args:
            tokens: (batch, length).
            positions: (length,) or (batch, length); 0, 1, ... where not given.
            documents: ids (batch, length); attention stays within one, and positions that are not
                given start again in each.
            cache: what was read before these tokens; they are added to it.

        Raises:
            ValueError: for more tokens than the position encoding, or the cache, reaches.
        """
        location = self._locate(tokens, positions, documents, cache)
        x: Tensor = self.embedding(tokens)
        if self.config.scale_embeddings:
            x = x * self.config.d_model**0.5
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        x = self.position.embed(x, location.positions)
        if self.config.dropout:
            x = F.dropout(x, self.config.dropout, self.training)
        kept = [None] * len(self.blocks) if cache is None else cache.layers
        for block, seen, layer in zip(self.blocks, self._scopes(location), kept, strict=True):
            x = block(x, seen, layer)
        out: Tensor = x if self.final_norm is None else self.final_norm(x)
        # The head is linear: this is a factor on the logits.
        return out if self.multipliers.logits == 1 else out * self.multipliers.logits

    def _locate(
        self,
        tokens: Tensor,
        positions: Tensor | None,
        documents: Tensor | None,
        cache: Cache | None,
    ) -> Location:
        end = self.config.end_of_text if self.config.document_mask else None
        if self.config.document_mask and end is None:
            raise ValueError(
                "model.document_mask=true needs the token that ends a document; type "
                "model.end_of_text=..."
            )
        location = locate(tokens, positions, documents, cache, end)
        longest = self.position.longest
        if positions is None and longest is not None and location.keys > longest:
            raise ValueError(
                f"position={self.config.position.name} reaches {longest} positions and the "
                f"sequence has {location.keys}; give it at most {longest} tokens."
            )
        return location

    def _scopes(self, location: Location) -> list[Scope]:
        """Return what the attention of each layer sees; layers alike share it."""
        phases = self.position.phases(location.positions)
        known: dict[tuple[bool, int | None], Scope] = {}
        scopes = []
        for block, name in zip(self.blocks, self.config.layer_positions, strict=True):
            attention = cast(Attention, block.attention)
            here = name == self.config.position.name
            key = (here, attention.window)
            if key not in known:
                known[key] = scope(
                    self.position if here else NO_POSITION,
                    phases if here else None,
                    location,
                    self.config.width_of_head,
                    attention.window,
                    attention.softcap,
                )
            scopes.append(known[key])
        return scopes

    def _check_patterns(self) -> None:
        """Refuse patterns that the chosen components cannot follow."""
        c = self.config
        if c.position_pattern is not None and type(self.position).embed is not Position.embed:
            raise ValueError(
                f"model.position_pattern needs a position that acts in each layer, and "
                f"position={c.position.name} is added to the embeddings once; type "
                "model.position_pattern=null, or position=rope."
            )
        windows = {cast(Attention, block.attention).window for block in self.blocks}
        if c.attention_pattern is not None and windows == {None}:
            raise ValueError(
                f"model.attention_pattern=[{','.join(c.attention_pattern)}] has no layer with a "
                "window; type model.attention.window=... and `local` for some layers."
            )

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the blocks, so that the loss, which calls no ``forward``, runs compiled too.

        Blocks alike share their compiled code; the names of parameters stay.
        """
        for block in self.blocks:
            block.compile(*args, **kwargs)

    def _tie(self) -> None:
        if self.config.tie_embeddings:
            self.head.weight = self.embedding.weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Transformer:
        # Where torch cannot change a parameter in place, as from the meta device, it makes a new
        # one for each module that holds it.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._tie()
        return self

    def _build_block(self, placement: Placement, local: bool) -> Block:
        c = self.config
        attention, ffn = self._build_attention(local), self._build_ffn()
        kind = ParallelBlock if placement.parallel else Block
        return kind(placement, self._build_norm, attention, ffn, c.dropout, c.n_layers)

    def _build_norm(self) -> Norm:
        norm: Norm = build("norm", self.config.norm, self.config.d_model)
        return norm

    def _build_position(self) -> Position:
        c = self.config
        sizes = PositionSizes(c.d_model, c.n_heads, c.width_of_head, c.context_length)
        position: Position = build("position", c.position, sizes)
        return position

    def _build_attention(self, local: bool) -> Attention:
        c = self.config
        sizes = AttentionSizes(
            c.d_model,
            c.n_heads,
            c.width_of_head,
            c.context_length,
            c.bias,
            local,
            self.multipliers.attention_scale,
        )
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
