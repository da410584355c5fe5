"""The loss over a text: compared with an explicit softmax, independent of the batch size."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lm_experiments.data import Tokenizer, train_tokenizer
from lm_experiments.evaluation import EncodedText, Score, encode, loss, score
from lm_experiments.model import Choice, ModelConfig, Transformer, build_model
from lm_experiments.registry import choose

CONFIG = ModelConfig(d_model=16, n_layers=1, n_heads=2, context_length=8, vocab_size=19, d_ff=48)
TEXT = EncodedText(np.arange(45, dtype=np.uint16) * 7 % 19, bytes=100)


def model_with(position: str) -> Transformer:
    config = ModelConfig(**{**vars(CONFIG), "position": Choice(position)})
    return build_model(config, seed=3).eval()


@torch.no_grad()
def written_out(model: Transformer, length: int) -> float:
    """The mean over windows of ``length`` targets that do not overlap, each on its own."""
    losses = []
    for start in range(0, 44, length):
        window = torch.from_numpy(TEXT.tokens[start : start + length + 1].astype(np.int64))
        logits = model(window[None, :-1])[0]
        losses += F.cross_entropy(logits, window[1:], reduction="none").tolist()
    assert len(losses) == 44
    return sum(losses) / 44


@pytest.mark.parametrize("length", [1, 5, 8, 11, 44])
def test_every_token_but_the_first_counts_once_at_every_length(length: int) -> None:
    model = model_with("rope")
    found = score(model, TEXT, length)
    assert (found.context_length, found.tokens, found.bytes) == (length, 44, 100)
    assert found.loss == pytest.approx(written_out(model, length), abs=1e-6)


@pytest.mark.parametrize("position", ["rope", "alibi", "hard_alibi", "t5", "sinusoidal", "none"])
def test_a_longer_context_is_that_of_a_model_built_for_it(position: str) -> None:
    model = model_with(position)
    longer = build_model(ModelConfig(**{**vars(model.config), "context_length": 24}), 0).eval()
    longer.load_state_dict(model.state_dict())
    assert score(model, TEXT, 24).loss == score(longer, TEXT, 24).loss
    # What the model was trained for stays as it was.
    assert score(model, TEXT, 8).loss == score(model_with(position), TEXT, 8).loss


def test_learned_positions_are_not_longer_than_trained() -> None:
    assert score(model_with("learned"), TEXT, 8).loss > 0
    with pytest.raises(ValueError, match="for each of 8 positions, too few for a context of 9"):
        score(model_with("learned"), TEXT, 9)


def test_the_losses_of_all_positions_add_up_and_are_those_of_causal_prefixes() -> None:
    model = model_with("rope")
    found, short = score(model, TEXT, 16), score(model, TEXT, 1)
    assert found.counts.tolist() == [3] * 12 + [2] * 4
    assert found.sums.sum() / 44 == pytest.approx(found.loss, abs=1e-6)
    means, counts = found.between([1, 4, 8, 16])
    assert counts == [3, 9, 12, 20]
    assert means[1] == pytest.approx(found.sums[1:4].sum() / 9)
    # The first position of a window sees nothing before it, whatever the window.
    alone = [
        score(model, EncodedText(TEXT.tokens[start : start + 2], None), 1).loss
        for start in (0, 16, 32)
    ]
    assert means[0] == pytest.approx(sum(alone) / 3, abs=1e-6)
    assert short.between([1]) == ([pytest.approx(short.loss, abs=1e-6)], [44])


def test_the_batches_do_not_change_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_with("rope")
    whole = score(model, TEXT, 4).loss
    for size in (1, 8, 13):
        monkeypatch.setitem(loss.BATCH_TOKENS, "cpu", size)
        assert score(model, TEXT, 4).loss == pytest.approx(whole, abs=1e-6)


def scored(loss: float, tokens: int, size: int | None) -> Score:
    return Score(8, loss, tokens, size, sums=np.zeros(8), counts=np.zeros(8, dtype=np.int64))


def test_perplexity_and_bits_per_byte() -> None:
    found = scored(2.0, 30, 120)
    assert found.perplexity == pytest.approx(7.38906)
    assert found.bits_per_byte == pytest.approx(2.0 / math.log(2) / 4)
    assert scored(2.0, 30, None).bits_per_byte is None
    assert scored(1000.0, 1, 1).perplexity == math.inf
    assert math.isnan(scored(math.nan, 1, 1).perplexity)


def test_documents_are_encoded_with_an_end_of_text_after_each() -> None:
    tokenizer: Tokenizer = train_tokenizer(["abc"], choose("tokenizer", "chars"))
    a, b, c = tokenizer.encode("abc").tolist()
    unknown, end = tokenizer.unknown_id, tokenizer.end_of_text_id
    found = encode(["ab", "", "cüa"], tokenizer)
    assert found.tokens.tolist() == [a, b, end, end, c, unknown, a, end]
    assert (found.bytes, found.altered) == (None, 1)


def test_no_text_cannot_be_evaluated() -> None:
    tokenizer = train_tokenizer(["abc"], choose("tokenizer", "bytes"))
    with pytest.raises(ValueError, match="has 0 tokens but evaluation needs at least 2"):
        score(model_with("rope"), encode([], tokenizer), 8)
