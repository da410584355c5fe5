"""Parameter and FLOP counts, without allocating the model.

A multiply-add is 2 FLOPs, attention is counted as the full square, of which a window has its share,
and a backward pass costs two forward passes. Norms, activations and the softmax are not counted,
and a document mask saves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from torch import nn

from lm_experiments.model.config import ModelConfig
from lm_experiments.model.transformer import sketch_model


@dataclass(frozen=True)
class Ledger:
    """Parameter and FLOP counts of a model.

    Attributes:
        parameters: all parameters, tied ones once.
        non_embedding: all but the token embedding, unless the head is tied to it.
        parts: parameters by part: embedding, position, attention, ffn, norms, head.
        ffn_width: the actual width of the feed-forward.
        context_length: the number of tokens of a sequence.
        forward_flops: for one sequence of ``context_length`` tokens.
    """

    parameters: int
    non_embedding: int
    parts: dict[str, int]
    ffn_width: int
    context_length: int
    forward_flops: int

    @property
    def training_flops_per_token(self) -> int:
        """Forward and backward FLOPs for one token of a full-length sequence."""
        return 3 * self.forward_flops // self.context_length


@cache
def count(config: ModelConfig) -> Ledger:
    """Count the parameters and FLOPs of the architecture ``config`` describes, once for each."""
    model = sketch_model(config)
    parts = dict.fromkeys(("embedding", "position", "attention", "ffn", "norms", "head"), 0)
    for name, parameter in model.named_parameters():
        path = name.split(".")
        # Parameters of a block are named blocks.LAYER.PART...
        part = path[2] if path[0] == "blocks" else path[0]
        parts[part if part in parts else "norms"] += parameter.numel()
    total = sum(parts.values())
    return Ledger(
        parameters=total,
        non_embedding=total - (0 if config.tie_embeddings else parts["embedding"]),
        parts=parts,
        ffn_width=config.width,
        context_length=config.context_length,
        forward_flops=forward_flops(model, config.context_length),
    )


def forward_flops(model: nn.Module, length: int) -> int:
    """Return the FLOPs of one forward pass over one sequence of ``length`` tokens.

    Linear layers are counted here. Any other module that multiplies matrices needs a method
    ``flops(length)``.
    """
    total = 0
    for module in model.modules():
        if isinstance(module, nn.Linear):
            total += 2 * length * module.in_features * module.out_features
        elif callable(flops := getattr(module, "flops", None)):
            total += flops(length)
    return total
