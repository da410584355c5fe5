"""The architecture: one component per axis, plus sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lm_experiments.fields import Use
from lm_experiments.model.feedforward import matched_width
from lm_experiments.registry import Choice


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines a model's graph and shapes.

    Attributes:
        d_model: the width of the residual stream.
        n_layers: the number of blocks.
        n_heads: the number of attention heads.
        context_length: tokens in a sequence.
        vocab_size: the number of ids; filled in from the tokenizer.
        d_ff: the width of an ungated feed-forward; gated ones are matched to its weights.
        ffn_width: the width built; null solves it from d_ff (see `matched_width`).
        match: params or flops to match gated and ungated feed-forwards, which have two FLOPs for
            each weight, so that both mean the same width; none to build d_ff.
        match_tolerance: the largest fraction by which matched weights may differ.
        tie_embeddings: whether the head is the token embedding.
        bias: whether linear layers inside blocks have biases.
        dropout: the fraction of embeddings and sublayer outputs zeroed in training.
        head_width: the width of an attention head; null for d_model / n_heads.
        scale_embeddings: whether embeddings are multiplied by sqrt(d_model).
        embedding_norm: whether a norm follows the token embedding.
        logit_softcap: logits become ``cap * tanh(logits / cap)``; null leaves them.
        z_loss: the weight of the mean squared log-partition in the training loss (PaLM); the
            validation loss never has it.
        document_mask: whether attention stays within documents, where positions start at 0. When
            false, a sequence cut from packed text attends across the ends of its documents.
        end_of_text: the token that ends a document; filled in from the tokenizer.
        position_pattern: for each layer the position encoding's name or none, repeated over the
            depth, as in [rope,rope,rope,none]; null has it in all layers.
        attention_pattern: for each layer local or global, repeated over the depth, as in
            [local,local,global]; null has the attention's window, if any, in all layers.
    """

    d_model: int = 128
    n_layers: int = 4
    n_heads: int = 4
    context_length: int = 128
    vocab_size: Annotated[int, Use.DERIVED] = 2048
    d_ff: Annotated[int, Use.SOURCE] = 512
    ffn_width: int | None = None
    match: Annotated[str, Use.SOURCE] = "params"
    match_tolerance: Annotated[float, Use.SOURCE] = 0.01
    tie_embeddings: bool = False
    bias: bool = False
    dropout: float = 0.0
    head_width: int | None = None
    scale_embeddings: bool = False
    embedding_norm: bool = False
    logit_softcap: float | None = None
    z_loss: float = 0.0
    document_mask: bool = False
    end_of_text: Annotated[int | None, Use.DERIVED] = None
    position_pattern: list[str] | None = None
    attention_pattern: list[str] | None = None
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
        if self.head_width is None and self.d_model % self.n_heads:
            raise ValueError(self._heads_message())
        check_options(self)
        check_patterns(self)

    def __hash__(self) -> int:
        # The patterns are lists, which have no hash of their own.
        return hash(repr(self))

    @property
    def width_of_head(self) -> int:
        """The width of one attention head."""
        return self.head_width or self.d_model // self.n_heads

    @property
    def layer_positions(self) -> list[str]:
        """The position encoding's name, or ``none``, for each layer."""
        return _repeated(self.position_pattern or [self.position.name], self.n_layers)

    @property
    def layer_reaches(self) -> list[str]:
        """``local`` for each layer in which the attention's window is in force, else ``global``."""
        return _repeated(self.attention_pattern or ["local"], self.n_layers)

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


def check_options(config: ModelConfig) -> None:
    """Refuse values that cannot be, or that could do nothing.

    Raises:
        ValueError: one sentence that says what to type instead.
    """
    if config.head_width is not None and config.head_width < 1:
        raise ValueError(f"model.head_width={config.head_width} must be at least 1, or null.")
    if config.logit_softcap is not None and config.logit_softcap <= 0:
        raise ValueError(
            f"model.logit_softcap={config.logit_softcap:g} must be positive, for example 30; type "
            "null to leave logits as they are."
        )
    if not 0 <= config.z_loss < 1:
        raise ValueError(
            f"model.z_loss={config.z_loss:g} must be 0 or more, and below 1, for example 1e-4."
        )
    if config.embedding_norm and config.norm.name == "none":
        raise ValueError(
            "model.embedding_norm=true does nothing with norm=none; type "
            "model.embedding_norm=false, or choose a norm."
        )
    if config.end_of_text is not None and not config.document_mask:
        raise ValueError(
            f"model.end_of_text={config.end_of_text} does nothing without a document mask; type "
            "model.document_mask=true, or model.end_of_text=null."
        )


def check_patterns(config: ModelConfig) -> None:
    """Refuse patterns that do not fit the depth, or name what a layer cannot be.

    Raises:
        ValueError: one sentence that says what to type instead.
    """
    position = config.position.name
    _check_pattern("position", config.position_pattern, (position, "none"), config.n_layers)
    _check_pattern("attention", config.attention_pattern, ("local", "global"), config.n_layers)
    if config.position_pattern is None:
        return
    if position == "none":
        raise ValueError(
            "model.position_pattern chooses among no layers with position=none; type "
            "model.position_pattern=null, or choose a position."
        )
    if position not in config.position_pattern:
        raise ValueError(
            f"model.position_pattern leaves no layer with position={position}; type position=none."
        )


def _check_pattern(
    axis: str, pattern: list[str] | None, allowed: tuple[str, ...], n_layers: int
) -> None:
    if pattern is None:
        return
    key = f"model.{axis}_pattern=[{','.join(pattern)}]"
    for entry in pattern:
        if entry not in allowed:
            raise ValueError(
                f"{key} has {entry!r}; its entries can be {' or '.join(dict.fromkeys(allowed))}."
            )
    if not pattern or n_layers % len(pattern):
        raise ValueError(
            f"{key} has {len(pattern)} entries, which do not divide model.n_layers={n_layers}; "
            "give it a length that does."
        )


def _repeated(pattern: list[str], n_layers: int) -> list[str]:
    return pattern * (n_layers // len(pattern))
