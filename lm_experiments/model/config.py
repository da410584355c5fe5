"""The architecture: one component per axis, plus sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .feedforward import matched_width
from .registry import Choice


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines a model's graph and shapes.

    Attributes:
        d_ff: the width of an ungated feed-forward; gated ones are matched to its weights.
        ffn_width: the width built; None solves it from ``d_ff`` (see `matched_width`).
        match: ``params`` or ``flops`` to match gated and ungated feed-forwards, which have two
            FLOPs for each weight, so that both mean the same width; ``none`` to build ``d_ff``.
        match_tolerance: the largest fraction by which matched weights may differ.
        bias: whether linear layers inside blocks have biases.
        dropout: the fraction of embeddings and sublayer outputs zeroed in training.
    """

    d_model: int = 128
    n_layers: int = 4
    n_heads: int = 4
    context_length: int = 128
    vocab_size: int = 2048
    d_ff: int = 512
    ffn_width: int | None = None
    match: str = "params"
    match_tolerance: float = 0.01
    tie_embeddings: bool = False
    bias: bool = False
    dropout: float = 0.0
    norm: Choice = Choice("rmsnorm")
    placement: Choice = Choice("pre")
    ffn: Choice = Choice("swiglu")
    position: Choice = Choice("rope")
    attention: Choice = Choice("causal")
    init: Choice = Choice("cs336")

    MATCHES: ClassVar = ("params", "flops", "none")
    SIZES: ClassVar = ("d_model", "n_layers", "n_heads", "context_length", "vocab_size", "d_ff")

    def __post_init__(self) -> None:
        for name in self.SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name}={getattr(self, name)} must be at least 1.")
        if self.ffn_width is not None and self.ffn_width < 1:
            raise ValueError(f"model.ffn_width={self.ffn_width} must be at least 1, or null.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout={self.dropout:g} must be 0 or more, and below 1.")
        if self.match not in self.MATCHES:
            raise ValueError(
                f"model.match={self.match} is not known; it can be {' or '.join(self.MATCHES)}."
            )
        if self.d_model % self.n_heads:
            raise ValueError(self._heads_message())

    @property
    def head_width(self) -> int:
        """The width of one attention head."""
        return self.d_model // self.n_heads

    @property
    def width(self) -> int:
        """The feed-forward width that is built."""
        if self.ffn_width is not None:
            return self.ffn_width
        if self.match == "none":
            return self.d_ff
        return matched_width(self.ffn.name, self.d_ff, self.match_tolerance)

    def _heads_message(self) -> str:
        divisors = [n for n in range(1, self.d_model + 1) if self.d_model % n == 0]
        nearest = min(divisors, key=lambda n: abs(n - self.n_heads))
        return (
            f"model.n_heads={self.n_heads} does not divide model.d_model={self.d_model} "
            f"({self.d_model} % {self.n_heads} = {self.d_model % self.n_heads}); "
            f"type model.n_heads={nearest}."
        )
