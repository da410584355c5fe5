"""Impossible sizes and options are refused, with a hint."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lm_experiments.model import Choice, ModelConfig, build_model, choose, sketch_model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"d_model": 64, "n_heads": 5},
            r"model.n_heads=5 does not divide model.d_model=64 \(64 % 5 = 4\); "
            "type model.n_heads=4",
        ),
        ({"n_heads": 0}, "model.n_heads=0 must be at least 1"),
        ({"d_model": -8}, "model.d_model=-8 must be at least 1"),
        ({"n_layers": 0}, "model.n_layers=0 must be at least 1"),
        ({"context_length": 0}, "model.context_length=0 must be at least 1"),
        ({"vocab_size": 0}, "model.vocab_size=0 must be at least 1"),
        ({"d_ff": 0}, "model.d_ff=0 must be at least 1"),
        ({"ffn_width": 0}, "model.ffn_width=0 must be at least 1, or null"),
        ({"head_width": 0}, "model.head_width=0 must be at least 1, or null"),
        ({"logit_softcap": 0.0}, "model.logit_softcap=0 must be positive, for example 30"),
        ({"z_loss": -1.0}, "model.z_loss=-1 must be 0 or more, and below 1"),
        ({"embedding_norm": True, "norm": Choice("none")}, "does nothing with norm=none"),
        ({"end_of_text": 3}, "model.end_of_text=3 does nothing without a document mask"),
        ({"position_pattern": ["rope"] * 3}, "has 3 entries, which do not divide model.n_layers=4"),
        ({"position_pattern": []}, "has 0 entries, which do not divide model.n_layers=4"),
        ({"position_pattern": ["alibi"]}, "has 'alibi'; its entries can be rope or none"),
        ({"position_pattern": ["none"]}, "leaves no layer with position=rope; type position=none"),
        (
            {"position_pattern": ["none"], "position": Choice("none")},
            "no effect with position=none",
        ),
        ({"attention_pattern": ["near"]}, "has 'near'; its entries can be local or global"),
        ({"attention_pattern": ["local"] * 3}, "which do not divide model.n_layers=4"),
        ({"match": "flop"}, "model.match=flop is not known; it can be params, flops, total, none"),
    ],
)
def test_impossible_sizes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(**changes)


def test_the_width_of_a_head() -> None:
    assert ModelConfig(d_model=512, n_heads=16).width_of_head == 32
    assert ModelConfig(d_model=512, n_heads=7, head_width=24).width_of_head == 24


def test_configurations_with_patterns_are_equal_and_have_the_same_hash() -> None:
    one, other = (ModelConfig(position_pattern=["rope", "none"]) for _ in range(2))
    assert {one: 1}[other] == 1
    assert one != ModelConfig(position_pattern=["none", "rope"])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "causal",
            {"kv_heads": 3},
            "kv_heads=3 does not divide model.n_heads=4; it can be 1, 2, 4",
        ),
        ("causal", {"kv_heads": 0}, "model.attention.kv_heads=0 must be at least 1, or null"),
        ("causal", {"window": 0}, "model.attention.window=0 must be at least 1, or null"),
        ("causal", {"window": 129}, "window=129 is larger than model.context_length=128"),
        ("causal", {"softcap": 0.0}, "model.attention.softcap=0 must be positive, or null"),
        ("causal", {"scale": -1.0}, "model.attention.scale=-1 must be positive, or null"),
        ("causal", {"qk_norm": "batch"}, "qk_norm=batch is not known; it can be none, rmsnorm"),
        ("causal", {"qk_norm_width": "row"}, "qk_norm_width=row is not known; it can be head, mod"),
        (
            "causal",
            {"qk_norm_width": "model"},
            "qk_norm_width=model does nothing with qk_norm=none",
        ),
        ("causal", {"qk_norm_eps": 1e-6}, "qk_norm_eps=1e-06 does nothing with qk_norm=none"),
        ("causal", {"qk_norm": "rmsnorm", "qk_norm_eps": 0.0}, "qk_norm_eps=0 must be positive"),
        ("multi_query", {"kv_heads": 2}, "type attention=grouped model.attention.kv_heads=2"),
    ],
)
def test_attention_that_cannot_be_built(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sketch_model(ModelConfig(attention=choose("attention", name, options)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_pattern": ["local", "global"]}, "has no layer with a window"),
        (
            {"attention_pattern": ["global"], "attention": Choice("sliding")},
            r"model.attention_pattern=\[global\] has no layer with a window",
        ),
        (
            {"position_pattern": ["learned", "none"], "position": Choice("learned")},
            "position=learned is added to the embeddings;",
        ),
    ],
)
def test_choices_that_contradict_each_other(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sketch_model(ModelConfig(**changes))


def test_a_document_mask_needs_the_token_that_ends_a_document() -> None:
    model = build_model(ModelConfig(document_mask=True), 0)
    with pytest.raises(ValueError, match=r"document_mask=true needs the token .*end_of_text"):
        model(torch.zeros(1, 4, dtype=torch.long))
