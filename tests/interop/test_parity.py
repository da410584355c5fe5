"""Converted models compute the same: float32 logits, and weights bit for bit."""

from __future__ import annotations

import dataclasses

import parity
import pytest
import torch
from torch import nn

from lm_experiments.errors import InputError
from lm_experiments.interop import FAMILIES, from_hf, load_hf, to_hf
from lm_experiments.model import Choice, ModelConfig, build_model, choose
from lm_experiments.registry import options_of

CASES = [(kind, variant) for kind, variants in parity.VARIANTS.items() for variant in variants]
# Metadata of a Hugging Face configuration, and fields that every export sets.
NOT_COMPARED = ("bos_token_id", "eos_token_id", "pad_token_id", "dtype", "max_window_layers")


def their_model(kind: str, variant: str) -> nn.Module:
    torch.manual_seed(1)
    return parity.their_model(kind, parity.VARIANTS[kind][variant])


def rope_as(pairing: str, config: ModelConfig) -> ModelConfig:
    options = {**vars(options_of("position", config.position)), "pairing": pairing}
    return dataclasses.replace(config, position=choose("position", "rope", options))


def test_every_family_has_variants() -> None:
    assert list(parity.VARIANTS) == list(FAMILIES)


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_logits_agree_both_ways_with_and_without_padding(kind: str, variant: str) -> None:
    theirs_as_ours, ours_as_theirs = parity.measure(kind, variant)
    for difference in (theirs_as_ours, ours_as_theirs):
        assert 0 <= difference.plain <= parity.TOLERANCE
        assert 0 <= difference.padded <= parity.TOLERANCE


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_a_hugging_face_model_survives_a_round_trip_bit_for_bit(kind: str, variant: str) -> None:
    theirs = their_model(kind, variant)
    config, state = from_hf(theirs)
    back, tensors = to_hf(config, state)
    before = theirs.state_dict()
    assert list(tensors) and tensors.keys() == before.keys()
    assert all(torch.equal(tensors[name], before[name]) for name in before)
    ignored = {
        "activation_function": "gelu_new",  # one of the names of GELU by tanh
        "hidden_act": "gelu_new",
        "n_inner": None,  # four times the width
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
    }
    was, now = theirs.config.to_dict(), back.to_dict()
    changed = {key: was[key] for key in was if was[key] != now.get(key) and key not in NOT_COMPARED}
    assert changed == {key: value for key, value in ignored.items() if key in changed}


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_ours_and_back_is_the_same_model_bit_for_bit(kind: str, variant: str) -> None:
    config, _ = from_hf(their_model(kind, variant))
    model = build_model(config, seed=3)
    theirs, tensors = to_hf(config, model.state_dict())
    loaded = parity.AutoModelForCausalLM.from_config(theirs)
    loaded.load_state_dict(tensors)
    config_back, state = from_hf(loaded)
    before = model.state_dict()
    assert config_back == config
    assert list(state) == list(before)
    assert all(torch.equal(state[name], before[name]) for name in before)


NEOX = {**parity.VARIANTS["gpt_neox"]["parallel, a quarter rotated"], "num_attention_heads": 4}


def partly_rotated(share: float, kind: str = "default") -> nn.Module:
    """A GPT-NeoX with heads of 12 columns, of which transformers rotates int(12 share)."""
    rope = {"rope_type": kind, "rope_theta": 100.0, "partial_rotary_factor": share}
    factor = {} if kind == "default" else {"factor": 2.0}
    return parity.their_model("gpt_neox", {**NEOX, "rope_parameters": rope | factor})


@pytest.mark.parametrize("kind", ["default", "linear"])
@pytest.mark.parametrize(("share", "columns"), [(0.34, 4), (0.9, 10), (0.5, 6), (1.0, 12)])
def test_a_rotated_share_is_rounded_down_to_whole_columns(
    share: float, columns: int, kind: str
) -> None:
    theirs = partly_rotated(share, kind)
    ours = load_hf(theirs)
    assert options_of("position", ours.config.position).fraction == columns / 12
    assert parity.difference(theirs, ours).plain <= parity.TOLERANCE
    assert parity.difference(parity.as_theirs(ours), ours).plain <= parity.TOLERANCE


def test_a_share_of_less_than_a_column_is_no_position() -> None:
    theirs = partly_rotated(0.05)
    ours = load_hf(theirs)
    assert ours.config.position == Choice("none")
    assert parity.difference(theirs, ours).plain <= parity.TOLERANCE


@pytest.mark.parametrize(("share", "columns"), [(0.3, 3), (0.3333, 3), (1.2, 14)])
def test_a_share_that_is_not_pairs_of_columns_is_refused(share: float, columns: int) -> None:
    words = f"partial_rotary_factor={share:g} rotates {columns} of the 12 columns of a head; only"
    with pytest.raises(InputError, match=words):
        load_hf(partly_rotated(share))


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_loaded_model_shares_no_memory_with_the_source(kind: str) -> None:
    theirs = their_model(kind, next(iter(parity.VARIANTS[kind])))
    ours = load_hf(theirs)
    before = ours.head.weight.clone()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.zero_()
    assert all(parameter.abs().sum() > 0 for parameter in ours.parameters())
    assert torch.equal(ours.head.weight, before)
    assert all(parameter.is_contiguous() for parameter in ours.parameters())
    assert not ours.training


def test_a_tied_head_is_one_tensor_and_counted_once() -> None:
    ours = load_hf(their_model("gpt2", "tied"))
    assert ours.head.weight is ours.embedding.weight
    assert len(list(ours.parameters())) == len(ours.state_dict()) - 1


def test_interleaved_pairs_become_halves_and_not_reordering_would_show() -> None:
    config = ModelConfig(d_model=48, n_layers=2, n_heads=6, vocab_size=97, context_length=32)
    model = parity.our_model(config)
    assert parity.difference(parity.as_theirs(model), model).plain <= parity.TOLERANCE

    unordered = build_model(rope_as("half", config), seed=0)
    unordered.load_state_dict(model.state_dict())
    assert parity.difference(parity.as_theirs(unordered), model).plain > 0.01


def test_the_arms_that_have_a_class_are_found() -> None:
    expected = {
        "gpt_neox": {"placement": Choice("parallel_two")},
        "gpt2": {"position": Choice("learned")},
    }
    for kind, choices in expected.items():
        config = ModelConfig(
            d_model=24,
            n_layers=1,
            n_heads=2,
            vocab_size=97,
            context_length=32,
            match="none",
            norm=choose("norm", "layernorm", {"shift": False}),
            ffn=Choice("relu2"),
            **choices,
        )
        model = parity.our_model(config)
        theirs = parity.as_theirs(model)
        assert theirs.config.model_type == kind
        assert parity.difference(theirs, model).plain <= parity.TOLERANCE


def test_scaling_by_ntk_is_written_as_another_theta() -> None:
    position = choose("position", "rope", {"scaling": "ntk", "factor": 3.0, "theta": 100.0})
    config = ModelConfig(
        d_model=24, n_layers=2, n_heads=2, vocab_size=97, context_length=32, position=position
    )
    model = build_model(config, seed=0)
    theirs = parity.as_theirs(model)
    assert theirs.config.rope_parameters["rope_theta"] == pytest.approx(100 * 3 ** (12 / 10))
    assert parity.difference(theirs, model).plain <= parity.TOLERANCE
