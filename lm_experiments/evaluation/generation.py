"""Continue a sequence of tokens: greedily, or by sampling with temperature, top-k and top-p."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lm_experiments.model import Transformer


class GenerationError(ValueError):
    """A continuation that cannot be made; the message says what to type instead."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn; where both limits are set, ``top_k`` comes first.

    Attributes:
        temperature: divides the logits; 0 takes the likeliest token each time (greedy).
        top_k: only the k likeliest tokens can be drawn (Fan et al. 2018); None for all.
        top_p: only the smallest set of likeliest tokens whose probabilities sum to at least p
            can be drawn (nucleus sampling, Holtzman et al. 2020); 1 for all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise GenerationError(
                f"temperature={self.temperature:g} must be 0 or more; type 0 for the likeliest "
                "token each time, 1 for the model's own probabilities."
            )
        if self.top_k is not None and self.top_k < 1:
            raise GenerationError(
                f"top_k={self.top_k} must be 1 or more; leave it out to draw from all tokens."
            )
        if not 0 < self.top_p <= 1:
            raise GenerationError(
                f"top_p={self.top_p:g} must be above 0 and at most 1; 1 draws from all tokens."
            )


def sample(
    model: Transformer,
    prompt_ids: Sequence[int],
    n_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    stop_id: int | None = None,
) -> list[int]:
    """Return at most ``n_tokens`` ids that continue the prompt; see `stream`."""
    return list(stream(model, prompt_ids, n_tokens, sampling, generator, stop_id))


def stream(
    model: Transformer,
    prompt_ids: Sequence[int],
    n_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    stop_id: int | None = None,
) -> Iterator[int]:
    """Yield at most ``n_tokens`` ids that continue the prompt, each as soon as it is drawn.

    Each id takes a forward pass over the last ``context_length`` tokens, with positions from 0.

    Args:
        model: in evaluation mode, on any device.
        prompt_ids: at least one id.
        n_tokens: at least 1.
        sampling: how an id is drawn.
        generator: on the CPU; the same state gives the same ids.
        stop_id: the id that ends the sequence; it is not yielded.

    Raises:
        GenerationError: for a prompt or a number outside these bounds (at once, not when the
            first id is asked for), and where the model's logits are not finite.
    """
    _check(prompt_ids, n_tokens, model.config.vocab_size)
    return _continue(model, list(prompt_ids), n_tokens, sampling, generator, stop_id)


def _continue(
    model: Transformer,
    ids: list[int],
    n_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    stop_id: int | None,
) -> Iterator[int]:
    for _ in range(n_tokens):
        probabilities = next_token_probabilities(_next_logits(model, ids), sampling)
        drawn = int(torch.multinomial(probabilities, 1, generator=generator))
        if drawn == stop_id:
            return
        ids.append(drawn)
        yield drawn


def next_token_probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the float32 probabilities (vocabulary,) from which the next token is drawn.

    Args:
        logits: shape (vocabulary,), all finite.
        sampling: what is kept; where several tokens are equally likely, lower ids come first.
    """
    logits = logits.float()
    if sampling.temperature == 0:
        return torch.zeros_like(logits).index_fill_(0, logits.argmax(), 1.0)
    # In float64 and with the maximum at 0, no temperature is too low.
    scaled = (logits - logits.max()).double() / sampling.temperature
    probabilities, order = scaled.softmax(0).float().sort(descending=True, stable=True)
    if sampling.top_k is not None:
        probabilities[sampling.top_k :] = 0
        probabilities /= probabilities.sum()
    if sampling.top_p < 1:
        before = probabilities.double().cumsum(0) - probabilities
        probabilities[before >= sampling.top_p] = 0
        probabilities /= probabilities.sum()
    return torch.zeros_like(logits).scatter_(0, order, probabilities)


@torch.inference_mode()
def _next_logits(model: Transformer, ids: list[int]) -> Tensor:
    """Return the logits (vocabulary,) of the token after ``ids``, on the CPU."""
    window = ids[-model.config.context_length :]
    tokens = torch.tensor([window], device=model.embedding.weight.device)
    # The head reads the last token alone: over the whole context it would cost the most.
    logits: Tensor = model.head(model.hidden(tokens)[0, -1]).cpu()
    if not logits.isfinite().all():
        raise GenerationError(
            "The model gives logits that are not finite, as after training that diverged; "
            "choose another run."
        )
    return logits


def _check(prompt_ids: Sequence[int], n_tokens: int, vocab_size: int) -> None:
    if n_tokens < 1:
        raise GenerationError(f"{n_tokens} tokens cannot be generated; ask for 1 or more.")
    if not prompt_ids:
        raise GenerationError(
            "The prompt holds no tokens; give at least one, for example the end-of-text token."
        )
    for token in prompt_ids:
        if not 0 <= token < vocab_size:
            raise GenerationError(
                f"The prompt holds token {token}, which is not in the model's vocabulary; give "
                f"ids from 0 to {vocab_size - 1}."
            )
