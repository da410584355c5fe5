"""The key-value cache for generation."""

from __future__ import annotations

import torch
from torch import Tensor

from lm_experiments.model.config import ModelConfig


class LayerCache:
    """The keys and values of one layer, each (batch, kv_heads, length, head_width).

    Memory for the whole context is allocated at the first call of `extend`.
    """

    def __init__(self, capacity: int, dtype: torch.dtype) -> None:
        self.capacity = capacity
        self.dtype = dtype
        self.length = 0
        self._cached: tuple[Tensor, Tensor] | None = None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the next keys and values; return all cached ones."""
        if self._cached is None:
            batch, heads, _, width = key.shape
            shape = (batch, heads, self.capacity, width)
            self._cached = (
                key.new_empty(shape, dtype=self.dtype),
                value.new_empty(shape, dtype=self.dtype),
            )
        end = self.length + key.shape[2]
        for cached, new in zip(self._cached, (key, value), strict=True):
            cached[:, :, self.length : end] = new
        self.length = end
        keys, values = (cached[:, :, :end].to(key.dtype) for cached in self._cached)
        return keys, values


class Cache:
    """The key-value cache of a model for ``batch`` sequences of at most ``context_length`` tokens.

    Pass it to `Transformer.forward` with each next part of the sequences; the logits equal those
    of one pass over all tokens so far. For inference only: it has no gradient.

    Attributes:
        length: the number of cached tokens of each sequence.
        layers: the keys and values of each layer.
        documents: the document ids of the cached tokens (batch, length), None without documents.
        ended: the number of documents that have ended in each sequence, (batch,).
    """

    def __init__(
        self, config: ModelConfig, batch: int, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        self.capacity = config.context_length
        self.length = 0
        self.layers = [LayerCache(self.capacity, dtype) for _ in range(config.n_layers)]
        self.documents: Tensor | None = None
        self.ended = torch.zeros(batch, dtype=torch.long, device=device)

    def check(self, tokens: Tensor) -> None:
        """Raise a ValueError for tokens (batch, length) of another batch size, or too many."""
        batch, length = tokens.shape
        if batch != len(self.ended):
            raise ValueError(
                f"The cache is for {len(self.ended)} sequences and was given {batch}; make "
                "another with Cache(config, batch, ...)."
            )
        if self.length + length > self.capacity:
            raise ValueError(
                f"The cache holds model.context_length={self.capacity} tokens; it has "
                f"{self.length} and cannot take {length} more; read the last part of the sequence "
                "into a new cache."
            )
