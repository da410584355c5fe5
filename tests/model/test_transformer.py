"""The whole model: initial loss, tied head, checkpoint names, low precision."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from small_models import tiny_batch, tiny_config, tiny_model
from torch import nn

from lm_experiments.model import ModelConfig, Transformer, build_model, count, sketch_model

KEYS_OF_ONE_LAYER = [
    "embedding.weight",
    "blocks.0.attention.query.weight",
    "blocks.0.attention.key.weight",
    "blocks.0.attention.value.weight",
    "blocks.0.attention.out.weight",
    "blocks.0.ffn.gate.weight",
    "blocks.0.ffn.up.weight",
    "blocks.0.ffn.down.weight",
    "blocks.0.attention_residual.in_norm.weight",
    "blocks.0.ffn_residual.in_norm.weight",
    "final_norm.weight",
    "head.weight",
]


@torch.no_grad()
def initial_loss(config: ModelConfig, seed: int) -> float:
    """Return the loss of an untrained model, averaged over all targets instead of a few drawn."""
    inputs, _ = tiny_batch(max(1, 256 // config.context_length), config)
    logits = build_model(config, seed)(inputs)
    return float((logits.logsumexp(-1) - logits.mean(-1)).mean())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_initial_loss_at_10000_words_and_width_512(seed: int) -> None:
    # The head reads a stream of unit size, so one block shows what four do.
    config = ModelConfig(
        d_model=512, n_layers=1, n_heads=16, context_length=128, vocab_size=10_000, d_ff=2016
    )
    expected = math.log(10_000) + 512 / 10_512
    assert expected == pytest.approx(9.259, abs=5e-4)
    assert initial_loss(config, seed) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("vocabulary", "nats"), [(50_257, 10.825), (4096, 8.318), (65, 4.174)])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_initial_loss_of_gpt2_is_that_of_guessing(
    placement: str, vocabulary: int, nats: float
) -> None:
    config = tiny_config(vocab_size=vocabulary, placement=placement, init="gpt2")
    assert initial_loss(config, 0) == pytest.approx(nats, abs=0.02)


def test_the_loss_is_the_cross_entropy_of_the_logits() -> None:
    model, (inputs, targets) = tiny_model(), tiny_batch()
    logits = model(inputs).flatten(0, 1)
    expected = F.cross_entropy(logits, targets.flatten(), reduction="sum")
    torch.testing.assert_close(model.loss(inputs, targets), expected)


@torch.no_grad()
def test_a_sequence_does_not_notice_its_neighbours() -> None:
    model, (inputs, _) = tiny_model(), tiny_batch(4)
    torch.testing.assert_close(model(inputs)[2:3], model(inputs[2:3]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("token", [-1, "vocabulary"])
def test_a_token_that_the_vocabulary_lacks_is_named(token: int | str) -> None:
    config = tiny_config()
    size = config.vocab_size
    wrong = size if isinstance(token, str) else token
    with pytest.raises(ValueError, match=rf"^Token {wrong} is not .* 0 to {size - 1}\.$"):
        tiny_model()(torch.tensor([[0, wrong]]))


def test_names_in_a_checkpoint() -> None:
    assert list(tiny_model(n_layers=1).state_dict()) == KEYS_OF_ONE_LAYER


def test_compiling_adds_no_prefix_to_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda call, **options: call)  # names need no compiler
    model = tiny_model(n_layers=1)
    model.compile()
    assert list(model.state_dict()) == KEYS_OF_ONE_LAYER


def tied_model() -> Transformer:
    return tiny_model(tie_embeddings=True)


def cast_model() -> Transformer:
    return tied_model().to(torch.float64).to(torch.bfloat16)


def copied_model() -> Transformer:
    return copy.deepcopy(tied_model())


def loaded_model() -> Transformer:
    model = tiny_model(seed=1, tie_embeddings=True)
    model.load_state_dict(tied_model().state_dict())
    assert torch.equal(model.embedding.weight, tied_model().embedding.weight)
    return model


def sketched_model() -> Transformer:
    return sketch_model(tiny_config(tie_embeddings=True))


def emptied_model() -> Transformer:
    return sketched_model().to_empty(device="cpu")


@pytest.mark.parametrize(
    "build",
    [tied_model, cast_model, copied_model, loaded_model, sketched_model, emptied_model],
    ids=lambda build: build.__name__,
)
def test_a_tied_head_is_the_embedding(build: Callable[[], Transformer]) -> None:
    model = build()
    assert model.head.weight is model.embedding.weight
    total = count(tiny_config(tie_embeddings=True)).parameters
    assert sum(p.numel() for p in model.parameters()) == total
    assert count(tiny_config()).parameters - total == 65 * 32


def test_a_tied_weight_gets_the_gradients_of_both_its_uses() -> None:
    tied, untied, (inputs, targets) = tied_model(), tiny_model(), tiny_batch()
    untied.load_state_dict({**tied.state_dict(), "head.weight": tied.embedding.weight.detach()})
    for model in (tied, untied):
        model.loss(inputs, targets).backward()  # type: ignore[no-untyped-call]
    both = [untied.embedding.weight.grad, untied.head.weight.grad]
    assert both[0] is not None and both[1] is not None
    torch.testing.assert_close(tied.embedding.weight.grad, both[0] + both[1])


def test_a_model_saved_and_loaded_gives_the_same_bits() -> None:
    first, second = tiny_model(seed=0, position="learned"), tiny_model(seed=1, position="learned")
    inputs, _ = tiny_batch()
    missing, unexpected = second.load_state_dict(first.state_dict())
    assert not missing and not unexpected
    assert torch.equal(first(inputs), second(inputs))


def finite_gradients(model: nn.Module) -> bool:
    gradients = [p.grad for p in model.parameters()]
    return all(g is not None and g.isfinite().all() and g.any() for g in gradients)


@pytest.mark.parametrize("position", ["rope", "sinusoidal", "learned"])
@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_autocast_to_bfloat16_trains(position: str, norm: str) -> None:
    model, (inputs, targets) = tiny_model(position=position, norm=norm), tiny_batch()
    exact = model.loss(inputs, targets).item() / 128
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.loss(inputs, targets) / 128
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(exact, abs=0.02)
    assert finite_gradients(model)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("position", ["rope", "sinusoidal", "learned"])
def test_a_model_cast_to_bfloat16_trains(position: str) -> None:
    model, (inputs, targets) = tiny_model(position=position), tiny_batch()
    exact = model.loss(inputs, targets).item() / 128
    model.to(torch.bfloat16)
    loss = model.loss(inputs, targets) / 128
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(exact, abs=0.05)
    assert finite_gradients(model)
