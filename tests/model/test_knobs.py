"""Every option, away from its default, changes what a model computes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from small_models import EVERY_COMPONENT, TINY, tiny_batch
from torch import Tensor

from lm_experiments.model import AXES, Choice, ModelConfig, build_model, choose
from lm_experiments.registry import component

EPS = {"eps": {"eps": 0.5}}
TANH = {"approximate": {"approximate": "tanh"}}
ATTENTION: dict[str, dict[str, Any]] = {
    "kv_heads": {"kv_heads": 2},
    "qk_norm": {"qk_norm": "rmsnorm"},
    "qk_norm_width": {"qk_norm": "rmsnorm", "qk_norm_width": "model"},
    "qk_norm_eps": {"qk_norm": "rmsnorm", "qk_norm_eps": 0.5},
    "window": {"window": 2},
    "softcap": {"softcap": 0.5},
    "scale": {"scale": 2.0},
    "bias": {"bias": True},
}
LLAMA3 = {"scaling": "llama3", "factor": 2.0, "original_context": 64}
YARN = {"scaling": "yarn", "factor": 2.0, "original_context": 1000}
ROPE: dict[str, dict[str, Any]] = {
    "theta": {"theta": 50.0},
    "pairing": {"pairing": "half"},
    "fraction": {"fraction": 0.5},
    "scaling": {"scaling": "ntk", "factor": 2.0},
    "factor": {"scaling": "linear", "factor": 3.0},
    "original_context": {**YARN, "original_context": 64},
    "low_freq_factor": {**LLAMA3, "low_freq_factor": 2.0},
    "high_freq_factor": {**LLAMA3, "high_freq_factor": 8.0},
    "beta_fast": {**YARN, "beta_fast": 2.0},
    "beta_slow": {**YARN, "beta_slow": 0.1},
}
ZEROS = {"zero_outputs": {"zero_outputs": True}}
# How each option is set away from its default, with what it needs beside it.
KNOBS: dict[str, dict[str, Any]] = {
    "rmsnorm": {**EPS, "offset": {"offset": True}},
    "layernorm": {**EPS, "gain": {"gain": False}, "shift": {"shift": False}},
    "layernorm_plain": EPS,
    "scalenorm": {"eps": {"eps": 50.0}},
    "dyt": {"alpha": {"alpha": 1.0}},
    "gelu": TANH,
    "geglu": TANH,
    "t5": {"buckets": {"buckets": 4}, "max_distance": {"max_distance": 20}},
    "rope": ROPE,
    "causal": ATTENTION,
    "grouped": ATTENTION,
    "multi_query": {key: value for key, value in ATTENTION.items() if key != "kv_heads"},
    "sliding": ATTENTION,
    **dict.fromkeys(("cs336", "gpt2", "small", "wang", "scaled"), ZEROS),
    "xavier": {**ZEROS, "distribution": {"distribution": "normal"}},
    "mup": {**ZEROS, "base_width": {"base_width": 64}, "base_heads": {"base_heads": 2}},
}
# What is compared with, where that is not the component at its defaults.
REFERENCES: dict[str, dict[str, Any]] = {
    "qk_norm_width": {"qk_norm": "rmsnorm"},
    "qk_norm_eps": {"qk_norm": "rmsnorm"},
    "factor": {"scaling": "linear", "factor": 2.0},
    "original_context": YARN,
    "beta_fast": YARN,
    "beta_slow": YARN,
    "low_freq_factor": LLAMA3,
    "high_freq_factor": LLAMA3,
}
# Options that are refused at any value but their default: such a value, and the message.
REFUSED: dict[tuple[str, str, str], tuple[Any, str]] = {
    ("attention", "multi_query", "kv_heads"): (
        2,
        "kv_heads=2 does not fit attention=multi_query",
    ),
}

OPTIONS = [
    (axis, name, field.name)
    for axis, name in EVERY_COMPONENT
    for field in dataclasses.fields(component(axis, name).options)
]
BASE = dataclasses.replace(TINY, d_model=64, n_heads=4, d_ff=128, context_length=40)
TOKENS = torch.randint(
    BASE.vocab_size, (2, BASE.context_length), generator=torch.Generator().manual_seed(0)
)


@torch.no_grad()
def logits(config: ModelConfig) -> Tensor:
    """Return the logits of a model whose vectors are not the ones and zeros they start as."""
    model = build_model(config, 0)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and not name.endswith("alpha"):
            parameter.fill_(0.3)
    out: Tensor = model(TOKENS)
    return out


@pytest.mark.parametrize(("axis", "name", "option"), [o for o in OPTIONS if o not in REFUSED])
def test_every_option_changes_the_output(axis: str, name: str, option: str) -> None:
    known = {axis: choose(axis, name, REFERENCES.get(option))}
    changed = {axis: choose(axis, name, KNOBS[name][option])}
    before = logits(dataclasses.replace(BASE, **known))  # type: ignore[arg-type]
    after = logits(dataclasses.replace(BASE, **changed))  # type: ignore[arg-type]
    assert after.isfinite().all()
    assert not torch.equal(before, after)


@pytest.mark.parametrize(("axis", "name", "option"), REFUSED)
def test_an_option_that_only_its_default_fits_is_refused(axis: str, name: str, option: str) -> None:
    value, message = REFUSED[axis, name, option]
    changed = {axis: choose(axis, name, {option: value})}
    with pytest.raises(ValueError, match=message):
        build_model(dataclasses.replace(BASE, **changed), 0)  # type: ignore[arg-type]


FIELDS: dict[str, dict[str, Any]] = {
    "tie_embeddings": {"tie_embeddings": True},
    "bias": {"bias": True},
    "head_width": {"head_width": 8},
    "scale_embeddings": {"scale_embeddings": True},
    "embedding_norm": {"embedding_norm": True},
    "logit_softcap": {"logit_softcap": 2.0},
    "document_mask": {"document_mask": True, "end_of_text": int(TOKENS[0, 5])},
    "end_of_text": {"document_mask": True, "end_of_text": int(TOKENS[0, 9])},
    "position_pattern": {"position_pattern": ["rope", "none"]},
    "attention_pattern": {
        "attention": Choice("sliding"),
        "attention_pattern": ["local", "global"],
    },
    "d_ff": {"d_ff": 256},
    "ffn_width": {"ffn_width": 32},
    "match": {"match": "none"},
    "n_layers": {"n_layers": 4},
    "n_heads": {"n_heads": 2},
}
# Sizes that the shapes show; what tests of their own show to act; limits that refuse.
ELSEWHERE = {"d_model", "vocab_size", "context_length", "dropout", "z_loss", "match_tolerance"}


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_the_model_changes_the_output(name: str) -> None:
    beside = {"attention": Choice("sliding")} if name == "attention_pattern" else {}
    if name == "end_of_text":
        beside = FIELDS["document_mask"]
    before = logits(dataclasses.replace(BASE, **beside))
    after = logits(dataclasses.replace(BASE, **FIELDS[name]))
    assert not torch.equal(before, after)


def test_every_field_of_the_model_is_listed_here() -> None:
    fields = {field.name for field in dataclasses.fields(ModelConfig)}
    assert fields == {*FIELDS, *ELSEWHERE, *AXES}


def test_z_loss_changes_the_training_loss_alone() -> None:
    model = build_model(dataclasses.replace(TINY, z_loss=0.1), 0)
    inputs, targets = tiny_batch()
    plain = build_model(TINY, 0).loss(inputs, targets)
    assert torch.equal(model.loss(inputs, targets), plain)
    log_z = model(inputs).logsumexp(-1)
    expected = plain + 0.1 * log_z.square().sum()
    torch.testing.assert_close(model.loss(inputs, targets, model.config.z_loss), expected)
