"""Every architecture composes, trains, matches its name, and can be ablated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import parity
import pytest
import yaml

from lm_experiments.errors import InputError
from lm_experiments.interop import from_hf
from lm_experiments.interop.support import choices, fitting_family
from lm_experiments.model import AXES, ModelConfig, count
from lm_experiments.study import sweeper
from lm_experiments.study.choices import offer_choices
from lm_experiments.study.plan import checked, plain
from lm_experiments.training.config import load_config

CONF = Path(__file__).resolve().parents[2] / "conf"
ARCHS = sorted(path.stem for path in (CONF / "arch").glob("*.yaml"))
# The class that each is exported as, or the choices that none has.
CLASSES = {
    "bloom": "bloom",
    "cs336": "llama",
    "gemma2": "gemma2",
    "gpt2": "gpt2",
    "gpt_neox": "gpt_neox",
    "llama": "llama",
    "olmo2": "olmo2",
    "qwen3": "qwen3",
}
WITHOUT_CLASS = {"palm": "placement=parallel", "vaswani2017": "placement=post"}
# Where ours departs from the defaults of their configuration. Those are not always those of the
# released models: Qwen3's theta is 1e6, GPT-NeoX-20B's GELU the approximate one.
DEPARTURES = {
    "gemma2": {"attention.window", "attention.kv_heads"},
    "qwen3": {"attention.kv_heads", "tie_embeddings", "position.theta"},
    "gpt_neox": {"ffn.approximate"},
    "bloom": set(),
    "gpt2": set(),
    "llama": set(),
    "olmo2": {"position.theta"},
}
# Sizes, what acts in training alone, and what the kind of attention is called.
FREE = (
    "attention",
    "attention.qk_norm_eps",
    "position.pairing",
    "z_loss",
    "d_ff",
    "match",
    "width",
    "norm.eps",
)


def composed(*words: str) -> ModelConfig:
    offer_choices()
    sweeper.register()
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        values = plain(hydra.compose("train", list(words)))
    return checked(values).model


def test_there_are_the_architectures_that_are_listed_here() -> None:
    assert sorted([*CLASSES, *WITHOUT_CLASS]) == ARCHS


@pytest.mark.parametrize("arch", ARCHS)
def test_an_architecture_trains(arch: str, train: Callable[..., Any]) -> None:
    words = ("model.n_layers=2", "model.n_heads=4", "model.d_model=32", "trainer.max_steps=20")
    answer = train(f"arch={arch}", *words)
    assert answer.code == 0, answer.err
    [run] = Path("runs").glob("*/*/config.yaml")
    assert load_config(run.parent).model.n_layers == 2
    [result] = Path("runs").glob("*/*/result.json")
    assert yaml.safe_load(result.read_text())["outcome"] == "ok"


@pytest.mark.parametrize("arch", ARCHS)
def test_each_part_of_an_architecture_can_be_exchanged(arch: str) -> None:
    others = {
        "norm": "dyt",
        "placement": "post",
        "ffn": "reglu",
        "position": "t5",
        "attention": "causal",
        "init": "scaled",
    }
    words = [f"{axis}={name}" for axis, name in others.items()]
    changed = composed(f"arch={arch}", "model.attention_pattern=null", *words)
    assert {axis: getattr(changed, axis).name for axis in others} == others


@pytest.mark.parametrize("arch", CLASSES)
def test_an_architecture_is_exported_as_its_own_class(arch: str) -> None:
    assert fitting_family(composed(f"arch={arch}")) == CLASSES[arch]


@pytest.mark.parametrize("arch", WITHOUT_CLASS)
def test_an_architecture_without_a_class_says_what_is_in_the_way(arch: str) -> None:
    with pytest.raises(InputError, match=WITHOUT_CLASS[arch]):
        fitting_family(composed(f"arch={arch}"))


@pytest.mark.parametrize("arch", DEPARTURES)
def test_an_architecture_is_what_transformers_builds_by_default(arch: str) -> None:
    theirs = parity.AutoConfig.for_model(arch)
    with parity.torch.device("meta"):
        built = parity.AutoModelForCausalLM.from_config(theirs)
    expected = choices(from_hf(built)[0])
    found = choices(
        composed(f"arch={arch}", "model.n_layers=4", "model.n_heads=8", "model.d_model=64")
    )
    sizes = {*ModelConfig.SIZES, "head_width", "attention.kv_heads"} - DEPARTURES[arch]
    differing = {
        path
        for path in expected.keys() | found.keys()
        if expected.get(path) != found.get(path)
        and path not in sizes
        and path.split(".")[0] != "init"
        and path not in FREE
    }
    assert differing == DEPARTURES[arch]


@pytest.mark.parametrize("axis", AXES)
def test_parts_named_after_an_architecture_are_used_by_one(axis: str) -> None:
    files = {path.stem for path in (CONF / axis).glob("*.yaml")}
    used = set()
    for arch in ARCHS:
        defaults = yaml.safe_load((CONF / "arch" / f"{arch}.yaml").read_text())["defaults"]
        used |= {choice.get(f"override /{axis}") for choice in defaults}
    assert files <= used


def test_the_ledger_counts_gpt2_as_published() -> None:
    config = composed("arch=gpt2", "size=gpt2_small", "tokenizer.vocab_size=50257")
    assert count(config).parameters == 124_439_808
