"""The key-value cache: what generation keeps of the tokens that a model has read."""

from __future__ import annotations

import torch
from torch import Tensor

from lm_experiments.model.config import ModelConfig


class LayerCache:
    """The keys and values of one layer, each (batch, kv_heads, length, head_width).

    Room for the whole context is taken once, when the first ones come.
    """

    def __init__(self, capacity: int, dtype: torch.dtype) -> None:
        self.capacity = capacity
        self.dtype = dtype
        self.length = 0
        self._kept: tuple[Tensor, Tensor] | None = None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the next keys and values; return all kept so far."""
        if self._kept is None:
            self._kept = (self._room_for(key), self._room_for(value))
        end = self.length + key.shape[2]
        for kept, new in zip(self._kept, (key, value), strict=True):
            kept[:, :, self.length : end] = new
        self.length = end
        keys, values = (kept[:, :, :end].to(key.dtype) for kept in self._kept)
        return keys, values

    def _room_for(self, new: Tensor) -> Tensor:
        batch, heads, _, width = new.shape
        return new.new_empty((batch, heads, self.capacity, width), dtype=self.dtype)


class Cache:
    """What a model has read of ``batch`` sequences, of at most ``context_length`` tokens each.

    Passed to `Transformer.forward` with each next part of the sequences, it makes the logits those
    of one pass over everything read so far. It is for inference: no gradient runs through it.

    Attributes:
        length: tokens read of each sequence.
        layers: the keys and values of each layer.
        positions: the positions of the tokens read, (length,) or (batch, length).
        documents: the document of each token read (batch, length), where documents are told apart.
        ended: the documents that have ended in each sequence (batch,).
    """

    def __init__(
        self, config: ModelConfig, batch: int, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        self.capacity = config.context_length
        self.length = 0
        self.layers = [LayerCache(self.capacity, dtype) for _ in range(config.n_layers)]
        self.positions = torch.empty(0, dtype=torch.long, device=device)
        self.documents: Tensor | None = None
        self.ended = torch.zeros(batch, dtype=torch.long, device=device)

    def check(self, tokens: Tensor) -> None:
        """Refuse tokens (batch, length) that it was not made for, or has no room for.

        Raises:
            ValueError: one sentence with the numbers.
        """
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
