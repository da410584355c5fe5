"""Generation with the cache equals generation without it, in batches and beyond the context."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from lm_experiments.errors import InputError
from lm_experiments.evaluation import (
    Sampling,
    generation,
    next_token_probabilities,
    sample_batch,
    stream,
)
from lm_experiments.model import AXES, Choice, ModelConfig, Transformer, build_model, choose
from lm_experiments.registry import component, names

pytestmark = pytest.mark.usefixtures("one_thread")

CONTEXT = 24
CONFIG = ModelConfig(
    d_model=32, n_layers=2, n_heads=4, context_length=CONTEXT, vocab_size=37, d_ff=48
)
GREEDY = Sampling(temperature=0)
POSITIONS: list[dict[str, Any]] = [{"position": name} for name in names("position")]
VARIANTS: list[dict[str, Any]] = [
    *POSITIONS,
    {"position": choose("position", "rope", {"fraction": 0.5, "pairing": "half"})},
    {"position": choose("position", "rope", {"scaling": "linear", "factor": 2.0})},
    {"position": "rope", "attention": "grouped"},
    {"position": "alibi", "attention": "multi_query"},
    {"position": "rope", "attention": "sliding"},
    {"position": "t5", "attention": "sliding"},
    {"position": "rope", "attention": choose("attention", "causal", {"softcap": 5.0})},
    {"position": "rope", "position_pattern": ["rope", "none"]},
    {"position": "learned", "document_mask": True, "end_of_text": 0},
    {"position": "alibi", "document_mask": True, "end_of_text": 0},
    {"position": "rope", "placement": "parallel", "logit_softcap": 5.0},
]
PROMPTS = [[5], [11, 2, 30, 4, 0, 9, 9, 1], [7, 7, 20], list(range(30))]


def model_with(changes: dict[str, Any]) -> Transformer:
    chosen = {
        key: Choice(value) if key in AXES and isinstance(value, str) else value
        for key, value in changes.items()
    }
    return build_model(dataclasses.replace(CONFIG, **chosen), seed=5).eval()


def named(changes: dict[str, Any]) -> str:
    """A short name for the test: of a component, its name and what is not at its default."""
    words = []
    for value in changes.values():
        if isinstance(value, Choice):
            defaults = component("position" if value.name == "rope" else "attention", value.name)
            options = vars(value.options)
            words.append(value.name)
            words += [f"{k}={v}" for k, v in options.items() if defaults.defaults()[k] != v]
        else:
            words.append(str(value))
    return " ".join(words)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def continued(model: Transformer, prompt: list[int], sampling: Sampling) -> list[int]:
    return list(stream(model, prompt, 50, sampling, seeded(1)))


@torch.no_grad()
def without_a_cache(model: Transformer, prompt: list[int], sampling: Sampling) -> list[int]:
    """Return fifty ids, each from a pass over all of the window before it."""
    ids, generator = list(prompt), seeded(1)
    for _ in range(50):
        logits = model(torch.tensor([ids[-CONTEXT:]]))[0, -1]
        probabilities = next_token_probabilities(logits, sampling)
        ids.append(int(torch.multinomial(probabilities, 1, generator=generator)))
    return ids[len(prompt) :]


@pytest.mark.parametrize("sampling", [GREEDY, Sampling()], ids=["greedy", "sampled"])
@pytest.mark.parametrize("changes", VARIANTS, ids=named)
def test_the_tokens_are_those_without_a_cache(changes: dict[str, Any], sampling: Sampling) -> None:
    """Fifty tokens, of which the last 34 are past the context."""
    model = model_with(changes)
    found = continued(model, PROMPTS[1], sampling)
    assert found == without_a_cache(model, PROMPTS[1], sampling)
    assert len(found) == 50
    if sampling != GREEDY:
        assert len(set(found)) > 5


@pytest.mark.parametrize("changes", VARIANTS, ids=named)
def test_prompts_of_different_lengths_continue_as_each_would_alone(changes: dict[str, Any]) -> None:
    model = model_with(changes)
    together = sample_batch(model, PROMPTS, 50, Sampling(), [seeded(1) for _ in PROMPTS])
    for prompt, found in zip(PROMPTS, together, strict=True):
        assert found == continued(model, prompt, Sampling())
    shorter = sample_batch(model, PROMPTS[:3], 20, GREEDY, [seeded(1)] * 3)
    for prompt, found in zip(PROMPTS, shorter, strict=False):
        assert found == continued(model, prompt, GREEDY)[:20]


def test_after_the_prompt_each_pass_is_over_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_with({})
    widths: list[int] = []
    hidden = model.hidden

    def spy(tokens: torch.Tensor, **given: Any) -> torch.Tensor:
        widths.append(tokens.shape[1])
        return hidden(tokens, **given)

    monkeypatch.setattr(model, "hidden", spy)
    list(stream(model, PROMPTS[1], 20, GREEDY, seeded(0)))
    assert widths == [8, *[1] * (CONTEXT - 8), *[CONTEXT] * 3]


def test_a_batch_ends_where_the_last_of_its_sequences_does() -> None:
    model = model_with({})
    generators = [seeded(s) for s in range(3)]
    whole = sample_batch(model, PROMPTS[:3], 30, Sampling(), generators)
    stop = whole[0][4]
    generators = [seeded(s) for s in range(3)]
    found = sample_batch(model, PROMPTS[:3], 30, Sampling(), generators, stop)
    for ids, complete in zip(found, whole, strict=True):
        assert ids == (complete[: complete.index(stop)] if stop in complete else complete)
    assert len(found[0]) <= 4


def test_a_model_in_bfloat16_keeps_its_cache_in_bfloat16() -> None:
    model = model_with({}).bfloat16()
    cache = generation._Predictor(model, 1).cache
    assert cache.layers[0].dtype == torch.bfloat16
    found = list(stream(model, PROMPTS[1], 30, GREEDY, seeded(0)))
    assert len(found) == 30


@pytest.mark.parametrize(
    ("prompts", "generators", "sentence"),
    [
        ([], 0, "0 prompts with 0 generators cannot be continued"),
        ([[1], [2]], 1, "2 prompts with 1 generators cannot be continued"),
        ([[1], []], 2, "The prompt holds no tokens"),
        ([[1], [37]], 2, "token 37, which is not in the model's vocabulary"),
    ],
)
def test_a_bad_batch_is_refused(prompts: list[list[int]], generators: int, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        sample_batch(model_with({}), prompts, 3, GREEDY, [seeded(0)] * generators)
