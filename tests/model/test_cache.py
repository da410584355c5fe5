"""With the key-value cache the logits equal those of one full pass, however tokens are split."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from small_models import TINY, tiny_model
from torch import Tensor

from lm_experiments.model import Choice, ModelConfig, Transformer, build_model, choose
from lm_experiments.model.attention_kernels import boolean_mask
from lm_experiments.model.cache import Cache
from lm_experiments.model.documents import locate
from lm_experiments.registry import names

PARTS = [[16], [1] * 16, [3, 2, 1, 10], [9, 7]]


def new_cache(model: Transformer, batch: int) -> Cache:
    return Cache(model.config, batch, "cpu", torch.float32)


def in_parts(model: Transformer, tokens: Tensor, parts: list[int], **inputs: Tensor) -> Tensor:
    """Return the logits of the sequence read part after part."""
    cache, logits, start = new_cache(model, len(tokens)), [], 0
    for length in parts:
        part = slice(start, start + length)
        given = {name: value[:, part] for name, value in inputs.items()}
        logits.append(model(tokens[:, part], cache=cache, **given))
        start += length
    assert cache.length == start == tokens.shape[1]
    return torch.cat(logits, 1)


@torch.no_grad()
@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("position", names("position"))
def test_parts_are_the_whole_for_every_position(position: str, parts: list[int]) -> None:
    model, tokens = tiny_model(position=position), torch.randint(65, (3, 16))
    torch.testing.assert_close(in_parts(model, tokens, parts), model(tokens), atol=1e-5, rtol=1e-5)


OPTIONS: list[dict[str, Any]] = [
    {"attention": Choice("grouped"), "n_heads": 4},
    {"attention": Choice("multi_query")},
    {"attention": Choice("sliding")},
    {"attention": Choice("sliding"), "attention_pattern": ["local", "global"]},
    {"attention": choose("attention", "grouped", {"window": 3, "softcap": 2.0})},
    {"attention": choose("attention", "causal", {"qk_norm": "l2"})},
    {"position_pattern": ["rope", "none"]},
    {"position": choose("position", "rope", {"fraction": 0.5, "pairing": "half"})},
    {"position": choose("position", "rope", {"scaling": "linear", "factor": 2.0})},
    {"placement": Choice("parallel"), "position": Choice("alibi"), "logit_softcap": 5.0},
    {"document_mask": True, "end_of_text": 7},
    {"document_mask": True, "end_of_text": 7, "position": Choice("learned")},
    {"document_mask": True, "end_of_text": 7, "position": Choice("t5")},
    {"document_mask": True, "end_of_text": 7, "position": Choice("hard_alibi")},
]


@torch.no_grad()
@pytest.mark.parametrize("parts", PARTS[1:], ids=str)
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
def test_parts_are_the_whole_for_every_option(changes: dict[str, Any], parts: list[int]) -> None:
    model = build_model(dataclasses.replace(TINY, **changes), 0)
    tokens = torch.randint(65, (3, 16))
    tokens[0, 4] = tokens[1, 8] = tokens[1, 9] = 7
    torch.testing.assert_close(in_parts(model, tokens, parts), model(tokens), atol=1e-5, rtol=1e-5)


def test_two_queries_over_five_keys_see_three_older_ones_and_no_later_one() -> None:
    cache = Cache(TINY, 1, "cpu", torch.float32)
    locate(torch.zeros(1, 3, dtype=torch.long), cache=cache)
    location = locate(torch.zeros(1, 2, dtype=torch.long), cache=cache)
    assert boolean_mask(location, None).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert boolean_mask(location, 2).int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]


@torch.no_grad()
@pytest.mark.parametrize("position", names("position"))
@pytest.mark.parametrize("attention", ["causal", "sliding"])
def test_padding_on_the_left_is_a_document_of_its_own(position: str, attention: str) -> None:
    model = tiny_model(position=position, attention=attention)
    tokens = torch.randint(65, (2, 12))
    documents = torch.ones(2, 12, dtype=torch.long)
    documents[0, :5] = 0
    for parts in ([12], [8, 1, 1, 2]):
        padded = in_parts(model, tokens, parts, documents=documents)
        alone = model(tokens[:1, 5:])
        torch.testing.assert_close(padded[:1, 5:], alone, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(padded[1:], model(tokens[1:]), atol=1e-5, rtol=1e-5)


def test_a_narrow_cache_keeps_narrow_keys() -> None:
    model, tokens = tiny_model(), torch.randint(65, (1, 16))
    cache = Cache(model.config, 1, "cpu", torch.bfloat16)
    with torch.no_grad():
        logits = torch.cat([model(part, cache=cache) for part in tokens.split(4, 1)], 1)
        assert not torch.equal(logits, model(tokens))
        torch.testing.assert_close(logits, model(tokens), atol=0.1, rtol=0.1)


@torch.no_grad()
def test_a_full_cache_and_another_batch_are_refused() -> None:
    model = tiny_model()
    cache = new_cache(model, 2)
    model(torch.zeros(2, 15, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match=r"holds model.context_length=16 .* cannot take 2 more"):
        model(torch.zeros(2, 2, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match="cache is for 2 sequences and was given 3"):
        model(torch.zeros(3, 1, dtype=torch.long), cache=cache)
    model(torch.zeros(2, 1, dtype=torch.long), cache=cache)


@torch.no_grad()
def test_documents_that_come_late_are_refused() -> None:
    model, tokens = tiny_model(), torch.zeros(1, 4, dtype=torch.long)
    cache = new_cache(model, 1)
    model(tokens, cache=cache)
    with pytest.raises(ValueError, match="with every part of a cached sequence, or with none"):
        model(tokens, documents=tokens, cache=cache)


@torch.no_grad()
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope"])
def test_more_tokens_than_positions_are_refused(position: str) -> None:
    model = tiny_model(position=position)
    with pytest.raises(ValueError, match=f"position={position} has 16 .* sequence has 17"):
        model(torch.zeros(1, 17, dtype=torch.long))


@torch.no_grad()
@pytest.mark.parametrize("position", ["none", "alibi", "hard_alibi", "t5"])
def test_positions_without_an_end_read_on(position: str) -> None:
    assert tiny_model(position=position)(torch.zeros(1, 40, dtype=torch.long)).isfinite().all()


def test_the_room_of_a_layer_is_that_of_its_key_heads() -> None:
    config: ModelConfig = dataclasses.replace(TINY, n_heads=4, attention=Choice("multi_query"))
    model = build_model(config, 0)
    cache = new_cache(model, 2)
    with torch.no_grad():
        model(torch.zeros(2, 5, dtype=torch.long), cache=cache)
    key, value = cache.layers[1].extend(torch.ones(2, 1, 1, 8), torch.ones(2, 1, 1, 8))
    assert key.shape == value.shape == (2, 1, 6, 8)
    assert torch.equal(key[:, :, 5:], torch.ones(2, 1, 1, 8))
