"""Generate text: greedily, or by sampling with temperature, top-k and top-p."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lm_experiments.data import Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.model import Transformer
from lm_experiments.model.cache import Cache


@dataclass(frozen=True)
class Sampling:
    """How the next token is sampled; ``top_k`` is applied before ``top_p``.

    Attributes:
        temperature: divides the logits; 0 for greedy decoding.
        top_k: sample from the k most likely tokens (Fan et al. 2018); None for all.
        top_p: sample from the smallest set of most likely tokens whose probabilities sum to at
            least p (nucleus sampling, Holtzman et al. 2020); 1 for all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise InputError(
                f"temperature={self.temperature:g} must be 0 or more; type 0 for greedy decoding, "
                "1 for the model's own probabilities."
            )
        if self.top_k is not None and self.top_k < 1:
            raise InputError(
                f"top_k={self.top_k} must be 1 or more; leave it out to sample from all tokens."
            )
        if not 0 < self.top_p <= 1:
            raise InputError(
                f"top_p={self.top_p:g} must be above 0 and at most 1; 1 samples from all tokens."
            )


def stream(
    model: Transformer,
    prompt_ids: Sequence[int],
    n_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    stop_id: int | None = None,
) -> Iterator[int]:
    """Yield at most ``n_tokens`` ids that continue the prompt, each as soon as it is sampled.

    Each id needs a forward pass over one token while the sequence fits the context. After that
    each needs one over the last ``context_length`` tokens, whose positions then start from 0.

    Args:
        model: in evaluation mode, on any device.
        prompt_ids: at least one id.
        n_tokens: at least 1.
        sampling: how ids are sampled.
        generator: on the CPU; the same state gives the same ids.
        stop_id: the id that ends the sequence; it is not yielded.

    Raises:
        InputError: for arguments out of range (before the first id is requested), and if the
            logits are not finite.
    """
    _check(prompt_ids, n_tokens, model.config.vocab_size)
    draws = _draws(model, [list(prompt_ids)], n_tokens, sampling, [generator])
    return itertools.takewhile(lambda drawn: drawn != stop_id, (drawn for [drawn] in draws))


def sample_batch(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    n_tokens: int,
    sampling: Sampling,
    generators: Sequence[torch.Generator],
    stop_id: int | None = None,
) -> list[list[int]]:
    """Return at most ``n_tokens`` ids for each prompt, generated as one batch.

    Prompts may differ in length; padding is masked. Up to rounding, each prompt gets the same ids
    as `stream` gives with its generator. See `stream` for the arguments.
    """
    for prompt_ids in prompts:
        _check(prompt_ids, n_tokens, model.config.vocab_size)
    if not prompts or len(prompts) != len(generators):
        raise InputError(
            f"{len(prompts)} prompts with {len(generators)} generators cannot be continued; give "
            "at least one prompt, and a generator for each."
        )
    generated: list[list[int]] = [[] for _ in prompts]
    unfinished = set(range(len(prompts)))
    rows = [list(prompt_ids) for prompt_ids in prompts]
    for drawn in _draws(model, rows, n_tokens, sampling, generators):
        unfinished -= {row for row in unfinished if drawn[row] == stop_id}
        for row in unfinished:
            generated[row].append(drawn[row])
        if not unfinished:
            break
    return generated


def _draws(
    model: Transformer,
    rows: list[list[int]],
    n_tokens: int,
    sampling: Sampling,
    generators: Sequence[torch.Generator],
) -> Iterator[list[int]]:
    """Sample the next id of each row, append it, and yield them."""
    predictor = _Predictor(model, len(rows))
    for _ in range(n_tokens):
        drawn = []
        for logits, generator in zip(predictor.next_logits(rows), generators, strict=True):
            probabilities = next_token_probabilities(logits, sampling)
            drawn.append(int(torch.multinomial(probabilities, 1, generator=generator)))
        for row, token in zip(rows, drawn, strict=True):
            row.append(token)
        yield drawn


class _Predictor:
    """Predicts the next token of growing rows of ids, with a key-value cache if possible."""

    def __init__(self, model: Transformer, batch: int) -> None:
        self.model = model
        weight = model.embedding.weight
        self.device = weight.device
        self.cache = Cache(model.config, batch, weight.device, weight.dtype)

    @torch.inference_mode()
    def next_logits(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the logits (batch, vocabulary) of the token after each row, on the CPU."""
        context = self.model.config.context_length
        tokens, documents = self._pad_left([row[-context:] for row in rows])
        # Once the window slides, all positions change.
        cache = self.cache if max(map(len, rows)) <= context else None
        if cache is not None:
            tokens, start = tokens[:, cache.length :], cache.length
            documents = None if documents is None else documents[:, start:]
        hidden = self.model.hidden(tokens, documents=documents, cache=cache)
        # Apply the head to the last token only, since it would dominate the cost.
        logits = self.model.logits(hidden[:, -1]).cpu()
        if not logits.isfinite().all():
            raise InputError(
                "The logits of the model are not finite, as after training that diverged; choose "
                "another run."
            )
        return logits

    def _pad_left(self, windows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None]:
        """Return tokens (batch, length), padded with 0 on the left, and their document ids.

        The padding is a document of its own, so it is not attended to and positions start after
        it. Without padding the document ids are None.
        """
        length = max(map(len, windows))
        pads = [length - len(window) for window in windows]
        padded = [[0] * pad + list(row) for pad, row in zip(pads, windows, strict=True)]
        tokens = torch.tensor(padded, device=self.device)
        if not any(pads):
            return tokens, None
        starts = torch.tensor(pads, device=self.device)[:, None]
        return tokens, (torch.arange(length, device=self.device) >= starts).long()


def next_token_probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the float32 probabilities (vocabulary,) that the next token is sampled from.

    Args:
        logits: shape (vocabulary,), all finite.
        sampling: temperature and limits; equally likely tokens are ordered by id.
    """
    logits = logits.float()
    if sampling.temperature == 0:
        return torch.zeros_like(logits).index_fill_(0, logits.argmax(), 1.0)
    # With float64 and a maximum of 0, very low temperatures do not overflow.
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


def encode_prompt(prompt: str, tokenizer: Tokenizer, key: str) -> list[int]:
    """Return the prompt's ids; without a prompt, the end of text, after which documents start.

    Raises:
        InputError: for a character that the tokenizer does not know, typed as ``key``.
    """
    unknown = tokenizer.unknown_id
    ids = [int(token) for token in tokenizer.encode(prompt)]
    if unknown is not None and unknown in ids:
        characters = [c for c in dict.fromkeys(prompt) if unknown in tokenizer.encode(c)]
        raise InputError(
            f"{key} holds {' '.join(map(repr, characters))}, which the run's tokenizer does "
            "not know, since its training text lacks it; leave it out."
        )
    return ids or [tokenizer.end_of_text_id]


def _check(prompt_ids: Sequence[int], n_tokens: int, vocab_size: int) -> None:
    if n_tokens < 1:
        raise InputError(f"{n_tokens} tokens cannot be generated; ask for 1 or more.")
    if not prompt_ids:
        raise InputError(
            "The prompt holds no tokens; give at least one, for example the end-of-text token."
        )
    for token in prompt_ids:
        if not 0 <= token < vocab_size:
            raise InputError(
                f"The prompt holds token {token}, which is not in the model's vocabulary; give "
                f"ids from 0 to {vocab_size - 1}."
            )
