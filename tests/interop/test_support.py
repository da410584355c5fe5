"""Which models can be exported: the closest class, and the choices it does not support."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from transformers.activations import ACT2FN

from lm_experiments.errors import InputError
from lm_experiments.interop import to_hf
from lm_experiments.interop.activations import GATED, UNGATED, activation_of, feedforward_of
from lm_experiments.interop.support import COMMON, FAMILIES, FREE, choices, fitting_family
from lm_experiments.model import AXES, Choice, ModelConfig, build_model, choose, register
from lm_experiments.model.norms import RMSNorm
from lm_experiments.registry import build, component, names

SMALL: dict[str, Any] = {
    "d_model": 24,
    "n_layers": 2,
    "n_heads": 4,
    "context_length": 16,
    "vocab_size": 50,
    "match": "none",
}


def config_of(**changes: Any) -> ModelConfig:
    return ModelConfig(**{**SMALL, **changes})


def all_paths() -> set[str]:
    """Every choice of a model there is, by its path."""
    fields = {field.name for field in dataclasses.fields(ModelConfig)}
    options = {
        f"{axis}.{option.name}"
        for axis in AXES
        for name in names(axis)
        for option in dataclasses.fields(component(axis, name).options)
    }
    return fields | options | {"width"}


def test_what_is_allowed_names_choices_that_exist() -> None:
    named = {*COMMON, *FREE, *(path for family in FAMILIES.values() for path in family)}
    assert named <= all_paths()


def test_every_size_and_option_is_decided_on() -> None:
    known = {*COMMON, *FREE, *(path for family in FAMILIES.values() for path in family)}
    undecided = {
        path
        for path in all_paths() - known
        if not path.startswith("init.") and path.split(".")[0] not in ("norm", "position")
    }
    assert undecided == set()


@pytest.mark.parametrize(
    ("changes", "family"),
    [
        ({}, "llama"),
        ({"attention": Choice("multi_query"), "bias": True}, "llama"),
        ({"head_width": 10, "ffn": Choice("bilinear")}, "llama"),
        (
            {"norm": Choice("layernorm"), "ffn": Choice("relu2"), "position": Choice("learned")},
            "gpt2",
        ),
        ({"norm": Choice("layernorm_plain"), "ffn": Choice("silu")}, "gpt_neox"),
        ({"attention": choose("attention", "causal", {"qk_norm": "rmsnorm"})}, "qwen3"),
        ({"attention": Choice("sliding"), "attention_pattern": None}, "qwen3"),
        ({"init": choose("init", "mup", {"base_width": 24})}, "llama"),
        ({"dropout": 0.1, "z_loss": 1e-4}, "llama"),
    ],
)
def test_a_class_is_found(changes: dict[str, Any], family: str) -> None:
    if "sliding" in str(changes):
        qk = choose("attention", "sliding", {"qk_norm": "rmsnorm"})
        changes = {**changes, "attention": qk}
    config = config_of(**changes)
    assert fitting_family(config) == family
    theirs, _ = to_hf(config, build_model(config, seed=0).state_dict())
    assert theirs.model_type == family


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ffn": Choice("relu2")}, "llama lacks ffn=relu2 (it has geglu, swiglu"),
        ({"norm": Choice("scalenorm")}, "norm=scalenorm (it has rmsnorm)"),
        ({"placement": Choice("post")}, "placement=post (it has pre)"),
        ({"position": Choice("none")}, "position=none (it has rope)"),
        ({"position": Choice("sinusoidal")}, "position=sinusoidal (it has rope)"),
        ({"scale_embeddings": True}, "model.scale_embeddings=true (it has false)"),
        ({"logit_softcap": 30.0}, "model.logit_softcap=30.0 (it has null)"),
        ({"norm": choose("norm", "rmsnorm", {"offset": True})}, "model.norm.offset=true"),
        ({"position_pattern": ["rope", "none"]}, "model.position_pattern=['rope', 'none']"),
        ({"init": choose("init", "mup", {"base_width": 8})}, "init=mup (it has no multipliers)"),
        (
            {"attention": choose("attention", "causal", {"softcap": 5.0})},
            "model.attention.softcap=5.0 (it has null)",
        ),
        (
            {"attention": choose("attention", "causal", {"scale": 0.5})},
            "model.attention.scale=0.5 (it has null)",
        ),
        (
            {
                "norm": Choice("layernorm"),
                "ffn": Choice("gelu"),
                "position": Choice("learned"),
                "attention": Choice("grouped"),
            },
            "model.attention.kv_heads=1 (it has 4)",
        ),
    ],
)
def test_what_no_class_expresses_is_named(changes: dict[str, Any], named: str) -> None:
    config = config_of(**changes)
    with pytest.raises(InputError) as error:
        to_hf(config, {})
    message = str(error.value)
    assert named in message
    assert "\n" not in message and message.endswith(".")


def test_several_misfits_are_all_named() -> None:
    config = config_of(ffn=Choice("relu"), placement=Choice("post"))
    with pytest.raises(InputError, match=r"llama lacks placement=post \(it has pre\), ffn=relu"):
        fitting_family(config)


def test_a_component_of_the_users_own_has_no_class(registry_as_before: None) -> None:
    @register("norm", "of_a_user")
    class OfAUser(RMSNorm):
        """RMSNorm, or so its author says."""

        def __init__(self, options: Any, width: int) -> None:
            super().__init__(component("norm", "rmsnorm").options(), width)

    with pytest.raises(InputError, match=r"norm=of_a_user \(it has rmsnorm\)"):
        fitting_family(config_of(norm=Choice("of_a_user")))


def test_a_scale_of_the_scores_that_is_no_root_of_a_whole_number_is_refused() -> None:
    attention = choose("attention", "causal", {"scale": 0.3})
    config = config_of(
        norm=choose("norm", "rmsnorm", {"offset": True}),
        placement=Choice("peri"),
        scale_embeddings=True,
        attention=attention,
    )
    assert fitting_family(config) == "gemma2"
    with pytest.raises(InputError, match="square root of a whole number"):
        to_hf(config, {})


def test_what_is_in_force_is_compared_and_not_what_was_typed() -> None:
    found = choices(config_of(attention=Choice("sliding")))
    assert found["attention.window"] == 4
    assert found["attention.kv_heads"] == 4
    assert found["head_width"] == 6


@pytest.mark.parametrize("name", [*UNGATED, *GATED])
def test_an_activation_has_the_name_of_the_same_function(name: str) -> None:
    config, x = config_of(ffn=Choice(name)), torch.linspace(-3, 3, 50)
    found = activation_of(config)
    torch.testing.assert_close(build("ffn", config.ffn, 2, 2)._activate(x), ACT2FN[found](x))
    assert feedforward_of(found, gated=name in GATED).name == name
