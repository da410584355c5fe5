"""The decoder-only transformer: embedding, blocks, optional final norm, head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lm_experiments.model.attention import Attention, AttentionSizes
from lm_experiments.model.attention_kernels import AttentionContext, attention_context
from lm_experiments.model.block import Block, ParallelBlock, Placement
from lm_experiments.model.cache import Cache, LayerCache
from lm_experiments.model.config import ModelConfig
from lm_experiments.model.documents import Location, locate
from lm_experiments.model.dropout import Dropout, DropoutKey
from lm_experiments.model.feedforward import FeedForward
from lm_experiments.model.init import initialise, multipliers
from lm_experiments.model.loss import losses_and_sum, sum_of_losses
from lm_experiments.model.norms import Norm
from lm_experiments.model.positions import NoPosition, Position, PositionSizes
from lm_experiments.model.projection import Projection
from lm_experiments.registry import NoOptions, build

NO_POSITION = NoPosition(NoOptions(), PositionSizes(1, 1, 1, 1))


class Transformer(nn.Module):
    """A language model built from a `ModelConfig`; its parameters are not initialised.

    Attributes:
        recompute: whether the backward pass computes each block again, from its input alone,
            instead of keeping its activations (Chen et al. 2016); the gradients are the same.
    """

    recompute = False

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.multipliers = multipliers(config)
        placement: Placement = build("placement", config.placement)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.embedding_norm = self._build_norm() if config.embedding_norm else None
        sizes = PositionSizes(
            config.d_model, config.n_heads, config.width_of_head, config.context_length
        )
        self.position: Position = build("position", config.position, sizes)
        self.dropout_key = DropoutKey()
        self.dropout = self._build_dropout(0)
        self.blocks = nn.ModuleList(
            self._build_block(placement, layer, reach == "local")
            for layer, reach in enumerate(config.layer_reaches)
        )
        self.final_norm = self._build_norm() if placement.final_norm else None
        self.head = Projection(config.d_model, config.vocab_size, role="head")
        self._tie()
        self._check_patterns()

    def forward(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Return the logits (batch, length, vocabulary); see `hidden` for the arguments."""
        return self.logits(self.hidden(tokens, documents, cache))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., vocabulary) for the output of `hidden`."""
        logits: Tensor = self.head(hidden)
        cap = self.config.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def loss(self, tokens: Tensor, targets: Tensor, z_loss: float = 0.0) -> Tensor:
        """Return the summed loss in nats over the valid ``targets``, as `sum_of_losses`."""
        hidden, cap = self.hidden(tokens), self.config.logit_softcap
        return sum_of_losses(hidden, self.head.weight, targets, cap, z_loss)

    def losses(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss in nats of each target (batch, length), and their sum as in `loss`."""
        hidden, cap = self.hidden(tokens), self.config.logit_softcap
        return losses_and_sum(hidden, self.head.weight, targets, cap)

    def answers(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `losses` does, and whether each target (batch, length) is the likeliest."""
        hidden, cap = self.hidden(tokens), self.config.logit_softcap
        losses, total = losses_and_sum(hidden, self.head.weight, targets, cap)
        return losses, total, self.head(hidden).argmax(-1) == targets

    def hidden(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Return the input of the head, (batch, length, d_model).

        Args:
            tokens: (batch, length).
            documents: document ids (batch, length); attention stays within a document, and
                positions restart in each.
            cache: the key-value cache of the tokens before these; it is extended.

        Raises:
            ValueError: for more tokens than the position encoding or the cache supports, and on a
                CPU for a token that the vocabulary lacks.
        """
        location = self._locate(tokens, documents, cache)
        x = self._embedded(tokens)
        if self.config.scale_embeddings:
            x = x * self.config.d_model**0.5
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        x = self.position.embed(x, location.positions)
        if self.dropout is not None:
            x = self.dropout(x)
        caches = [None] * len(self.blocks) if cache is None else cache.layers
        contexts = self._attention_contexts(location)
        for block, context, layer_cache in zip(self.blocks, contexts, caches, strict=True):
            x = self._through(block, x, context, layer_cache)
        out: Tensor = x if self.final_norm is None else self.final_norm(x)
        # The head is linear, so this multiplies the logits.
        return out if self.multipliers.logits == 1 else out * self.multipliers.logits

    def _through(
        self, block: nn.Module, x: Tensor, context: AttentionContext, cache: LayerCache | None
    ) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            return cast(Tensor, checkpoint(block, x, context, cache, use_reentrant=False))
        return cast(Tensor, block(x, context, cache))

    def _embedded(self, tokens: Tensor) -> Tensor:
        try:
            embedded: Tensor = self.embedding(tokens)
        except IndexError as error:
            # Only now, since to look at the tokens of every batch would wait for a GPU.
            low, high = int(tokens.min()), int(tokens.max())
            raise ValueError(
                f"Token {low if low < 0 else high} is not in the vocabulary, whose tokens are 0 to "
                f"{self.config.vocab_size - 1}."
            ) from error
        return embedded

    def _locate(self, tokens: Tensor, documents: Tensor | None, cache: Cache | None) -> Location:
        end = self.config.end_of_text if self.config.document_mask else None
        if self.config.document_mask and end is None:
            raise ValueError(
                "model.document_mask=true needs the token that ends a document; type "
                "model.end_of_text=..."
            )
        location = locate(tokens, documents, cache, end)
        longest = self.position.longest
        if longest is not None and location.keys > longest:
            raise ValueError(
                f"position={self.config.position.name} has {longest} positions and the sequence "
                f"has {location.keys} tokens; give it at most {longest} tokens."
            )
        return location

    def _attention_contexts(self, location: Location) -> list[AttentionContext]:
        """Return the attention context of each layer; equal layers share it."""
        phases = self.position.phases(location.positions)
        shared: dict[tuple[bool, int | None], AttentionContext] = {}
        contexts = []
        pattern = self.config.position_pattern or [self.config.position.name]
        for layer, block in enumerate(self.blocks):
            attention = cast(Attention, block.attention)
            encoded = pattern[layer % len(pattern)] == self.config.position.name
            key = (encoded, attention.window)
            if key not in shared:
                shared[key] = attention_context(
                    self.position if encoded else NO_POSITION,
                    phases if encoded else None,
                    location,
                    self.config.width_of_head,
                    attention.window,
                    attention.softcap,
                )
            contexts.append(shared[key])
        return contexts

    def _check_patterns(self) -> None:
        """Raise a ValueError for layer patterns that the chosen components do not support."""
        c = self.config
        if c.position_pattern is not None and type(self.position).embed is not Position.embed:
            raise ValueError(
                f"model.position_pattern needs a position encoding that acts in each layer, but "
                f"position={c.position.name} is added to the embeddings; type "
                "model.position_pattern=null, or position=rope."
            )
        windows = {cast(Attention, block.attention).window for block in self.blocks}
        if c.attention_pattern is not None and windows == {None}:
            raise ValueError(
                f"model.attention_pattern=[{','.join(c.attention_pattern)}] has no layer with a "
                "window; type model.attention.window=... and `local` for some layers."
            )

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile each block, since `loss` does not call ``forward``.

        Equal blocks share the compiled code, and parameter names do not change.
        """
        for block in self.blocks:
            block.compile(*args, **kwargs)

    def _tie(self) -> None:
        if self.config.tie_embeddings:
            self.head.weight = self.embedding.weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Transformer:
        # Moving from the meta device creates new parameters, one for each module, so tie again.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._tie()
        return self

    def _build_block(self, placement: Placement, layer: int, local: bool) -> Block:
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
        attention: Attention = build("attention", c.attention, sizes)
        ffn: FeedForward = build("ffn", c.ffn, c.d_model, c.width, c.bias)
        kind = ParallelBlock if placement.parallel else Block
        dropouts = self._build_dropout(2 * layer + 1), self._build_dropout(2 * layer + 2)
        return kind(placement, self._build_norm, attention, ffn, dropouts, c.n_layers)

    def _build_dropout(self, number: int) -> Dropout | None:
        rate = self.config.dropout
        return Dropout(rate, number, self.dropout_key) if rate else None

    def _build_norm(self) -> Norm:
        norm: Norm = build("norm", self.config.norm, self.config.d_model)
        return norm


def build_model(config: ModelConfig, seed: int) -> Transformer:
    """Build a model on the CPU, every parameter drawn from a generator seeded by (seed, name)."""
    model = sketch_model(config)
    model.to_empty(device="cpu")
    initialise(model, config, seed)
    return model


def sketch_model(config: ModelConfig) -> Transformer:
    """Build a model on the meta device: shapes without memory."""
    with torch.device("meta"):
        return Transformer(config)
