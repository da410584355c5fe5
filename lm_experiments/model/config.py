"""The architecture: one component per axis, plus sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from lm_experiments.fields import Use
from lm_experiments.model.checks import check_at_least_one, check_choice, check_positive
from lm_experiments.model.feedforward import matched_width
from lm_experiments.registry import Choice


@dataclass(frozen=True)
class ModelConfig:
    """The architecture: everything that determines a model's graph and shapes.

    Attributes:
        d_model: the width of the residual stream.
        n_layers: the number of blocks.
        n_heads: the number of attention heads.
        context_length: the number of tokens of a training sequence.
        vocab_size: the number of tokens of the vocabulary.
        d_ff: the width of an ungated feed-forward; gated ones are matched to its weights.
        ffn_width: the actual width of the feed-forward; null computes it from ``d_ff``.
        match: ``params`` or ``flops`` to give gated feed-forwards the width at which they have
            most nearly the weights, and thus FLOPs, of ungated ones; ``total`` to give each arm
            of a sweep the width at which its whole model has most nearly the parameters of the
            baseline, which is as with ``params``; ``none`` to use ``d_ff``.
        match_tolerance: the largest fraction by which matched weights may differ.
        tie_embeddings: whether the head shares the weights of the token embedding.
        bias: whether linear layers inside blocks have biases.
        dropout: the dropout probability of embeddings and sublayer outputs.
        head_width: the width of an attention head; null for d_model / n_heads.
        scale_embeddings: whether embeddings are multiplied by sqrt(d_model).
        embedding_norm: whether a norm follows the token embedding.
        logit_softcap: logits become ``cap * tanh(logits / cap)``; null for no cap.
        z_loss: the weight of the mean squared log-partition function in the training loss (PaLM);
            the validation loss does not include it.
        document_mask: whether attention stays within documents and positions restart at 0 in
            each. If false, a sequence of packed text attends across document boundaries.
        end_of_text: the token that ends a document; set from the tokenizer.
        position_pattern: for each layer the name of the position encoding or ``none``, repeated
            over the depth; null uses the encoding in all layers.
        attention_pattern: for each layer ``local`` or ``global``, repeated over the depth; null
            uses the window of the attention, if any, in all layers.
        norm: the normalisation layer.
        placement: where the norms of a block are.
        ffn: the feed-forward.
        position: the position encoding.
        attention: the attention layer.
        init: the initialisation scheme.
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

    MATCHES: ClassVar = ("params", "flops", "total", "none")
    SIZES: ClassVar = ("d_model", "n_layers", "n_heads", "context_length", "vocab_size", "d_ff")

    def __post_init__(self) -> None:
        for name in self.SIZES:
            check_at_least_one(f"model.{name}", getattr(self, name))
        check_at_least_one("model.ffn_width", self.ffn_width, optional=True)
        check_at_least_one("model.head_width", self.head_width, optional=True)
        check_choice("model.match", self.match, self.MATCHES)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout={self.dropout:g} must be 0 or more, and below 1.")
        if self.head_width is None and self.d_model % self.n_heads:
            divisors = [n for n in range(1, self.d_model + 1) if self.d_model % n == 0]
            nearest = min(divisors, key=lambda n: abs(n - self.n_heads))
            raise ValueError(
                f"model.n_heads={self.n_heads} does not divide model.d_model={self.d_model} "
                f"({self.d_model} % {self.n_heads} = {self.d_model % self.n_heads}); "
                f"type model.n_heads={nearest}."
            )
        _check_options(self)
        _check_patterns(self)

    def __hash__(self) -> int:
        # The patterns are lists, which are not hashable.
        return hash(repr(self))

    @property
    def width_of_head(self) -> int:
        """The width of one attention head."""
        return self.head_width or self.d_model // self.n_heads

    @property
    def layer_reaches(self) -> list[str]:
        """For each layer ``local`` if the attention window applies in it, else ``global``."""
        pattern = self.attention_pattern or ["local"]
        return pattern * (self.n_layers // len(pattern))

    @property
    def width(self) -> int:
        """The actual width of the feed-forward."""
        if self.ffn_width is not None:
            return self.ffn_width
        if self.match == "none":
            return self.d_ff
        return matched_width(self.ffn.name, self.d_ff, self.match_tolerance)


def _check_options(config: ModelConfig) -> None:
    hint = "for example 30; type null for no cap"
    check_positive("model.logit_softcap", config.logit_softcap, hint)
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


def _check_patterns(config: ModelConfig) -> None:
    position = config.position.name
    _check_pattern("position", config.position_pattern, (position, "none"), config.n_layers)
    _check_pattern("attention", config.attention_pattern, ("local", "global"), config.n_layers)
    if config.position_pattern is None:
        return
    if position == "none":
        raise ValueError(
            "model.position_pattern has no effect with position=none; type "
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
