"""Generation: sampling limits, and the sequences that a model generates."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lm_experiments.errors import InputError
from lm_experiments.evaluation import Sampling, generation, next_token_probabilities, stream
from lm_experiments.model import Choice, ModelConfig, Transformer, build_model

pytestmark = pytest.mark.usefixtures("one_thread")

GREEDY = Sampling(temperature=0)
CONFIG = ModelConfig(d_model=16, n_layers=2, n_heads=2, context_length=8, vocab_size=19, d_ff=48)


def sample(*arguments: Any) -> list[int]:
    return list(stream(*arguments))


@pytest.fixture(scope="module")
def model() -> Transformer:
    return build_model(CONFIG, seed=3).eval()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kept(logits: Tensor, sampling: Sampling) -> list[int]:
    """The ids that can be drawn."""
    return next_token_probabilities(logits, sampling).nonzero().flatten().tolist()


def logits_of(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).log()


def test_greedy_takes_the_argmax_of_the_whole_forward_pass(model: Transformer) -> None:
    ids = [5, 1, 7]
    for drawn in sample(model, ids.copy(), 5, GREEDY, seeded()):
        assert drawn == int(model(torch.tensor([ids]))[0, -1].argmax())
        ids.append(drawn)
    assert len(ids) == 8


@pytest.mark.parametrize(
    "sampling",
    [Sampling(top_k=1), Sampling(top_p=1e-6), Sampling(temperature=1e-320), Sampling(2.0, 1, 0.5)],
)
def test_the_narrowest_sampling_is_greedy(model: Transformer, sampling: Sampling) -> None:
    greedy = sample(model, [2, 3], 12, GREEDY, seeded())
    assert sample(model, [2, 3], 12, sampling, seeded(1)) == greedy


def test_plain_sampling_is_the_softmax() -> None:
    logits = torch.randn(50, generator=seeded())
    torch.testing.assert_close(next_token_probabilities(logits, Sampling()), logits.softmax(0))
    halved = next_token_probabilities(logits, Sampling(temperature=2.0))
    torch.testing.assert_close(halved, (logits / 2).softmax(0))


def test_top_k_keeps_the_k_likeliest_and_renormalises() -> None:
    logits = logits_of(0.1, 0.4, 0.2, 0.3)
    found = next_token_probabilities(logits, Sampling(top_k=2))
    torch.testing.assert_close(found, torch.tensor([0, 4 / 7, 0, 3 / 7]))
    assert kept(logits, Sampling(top_k=100)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [(0.01, [1]), (0.5, [1]), (0.51, [1, 3]), (0.75, [1, 3]), (0.76, [0, 1, 3]), (0.99, None)],
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(
    top_p: float, expected: list[int] | None
) -> None:
    logits = logits_of(0.125, 0.5, 0.125, 0.25)
    assert kept(logits, Sampling(top_p=top_p)) == (expected or [0, 1, 2, 3])
    assert next_token_probabilities(logits, Sampling(top_p=top_p)).sum() == pytest.approx(1)


def test_top_p_counts_what_top_k_left() -> None:
    # Of the two likeliest, 0.4 is 0.57: enough for p = 0.5, which it is not of all four.
    logits = logits_of(0.1, 0.4, 0.2, 0.3)
    assert kept(logits, Sampling(top_p=0.5)) == [1, 3]
    assert kept(logits, Sampling(top_k=2, top_p=0.5)) == [1]


def test_without_limits_the_least_likely_token_can_be_drawn() -> None:
    logits = torch.zeros(1000)
    logits[-1] = -15.0
    assert len(kept(logits, Sampling())) == 1000


def test_bfloat16_logits_give_float32_probabilities() -> None:
    found = next_token_probabilities(torch.zeros(300, dtype=torch.bfloat16), Sampling())
    assert found.dtype == torch.float32
    assert found.sum() == pytest.approx(1)


def test_draws_follow_the_probabilities(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = torch.tensor([0.5, 0.3, 0.15, 0.05])
    monkeypatch.setattr(generation._Predictor, "next_logits", lambda *_: expected.log()[None])
    draws = torch.tensor(sample(model, [4], 4000, Sampling(), seeded()))
    assert ((draws.bincount() / 4000) - expected).abs().max() < 0.03


def test_a_seed_decides_the_sequence(model: Transformer) -> None:
    first, again, other = (sample(model, [1], 20, Sampling(), seeded(s)) for s in (7, 7, 8))
    assert first == again
    assert first != other
    assert len(first) == 20


@pytest.mark.parametrize("position", ["learned", "rope", "sinusoidal", "none"])
def test_a_long_prompt_is_cropped_and_positions_restart(position: str) -> None:
    config = ModelConfig(**{**vars(CONFIG), "position": Choice(position)})
    model = build_model(config, seed=1).eval()
    prompt = torch.randint(CONFIG.vocab_size, (30,), generator=seeded()).tolist()
    assert sample(model, prompt, 9, Sampling(), seeded()) == sample(
        model, prompt[-CONFIG.context_length :], 9, Sampling(), seeded()
    )


def test_the_stop_token_ends_the_sequence_and_is_left_out(model: Transformer) -> None:
    whole = sample(model, [1], 20, Sampling(), seeded(7))
    stop = whole[6]
    assert sample(model, [1], 20, Sampling(), seeded(7), stop) == whole[: whole.index(stop)]


def test_a_stream_yields_before_it_has_ended(model: Transformer) -> None:
    prompt = [1]
    ids = stream(model, prompt, 10**9, Sampling(), seeded(7))
    assert [next(ids), next(ids)] == sample(model, prompt, 2, Sampling(), seeded(7))
    assert prompt == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_p": math.nan},
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, float]) -> None:
    [name] = options
    with pytest.raises(InputError, match=rf"^{name}=\S+ must be "):
        Sampling(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "n_tokens", "word"),
    [([], 5, "no tokens"), ([1], 0, "0 tokens"), ([19], 5, "token 19"), ([-1], 5, "token -1")],
)
def test_a_bad_prompt_is_refused_at_once(
    model: Transformer, prompt: list[int], n_tokens: int, word: str
) -> None:
    with pytest.raises(InputError, match=word):
        stream(model, prompt, n_tokens, GREEDY, seeded())


@pytest.mark.parametrize("sampling", [GREEDY, Sampling()])
def test_a_model_that_diverged_is_refused(sampling: Sampling) -> None:
    broken = build_model(CONFIG, seed=0).eval()
    with torch.no_grad():
        broken.head.weight[3, 2] = math.nan
    with pytest.raises(InputError, match="not finite"):
        sample(broken, [1], 5, sampling, seeded())
