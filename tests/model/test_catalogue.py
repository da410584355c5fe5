"""The public list of components is frozen: a change must be deliberate."""

from __future__ import annotations

import lm_experiments.training.config  # noqa: F401, registers optimizers and schedules
from lm_experiments.model import AXES
from lm_experiments.registry import component, names

ATTENTION = "kv_heads qk_norm qk_norm_width qk_norm_eps window softcap scale bias"
CATALOGUE = {
    "norm": {
        "rmsnorm": "eps offset",
        "layernorm": "eps gain shift",
        "layernorm_plain": "eps",
        "scalenorm": "eps",
        "dyt": "alpha",
        "none": "",
    },
    "placement": {
        "pre": "",
        "post": "",
        "peri": "",
        "reordered": "",
        "parallel": "",
        "parallel_two": "",
        "deepnorm": "",
    },
    "ffn": {
        "relu": "",
        "gelu": "approximate",
        "silu": "",
        "relu2": "",
        "glu": "",
        "bilinear": "",
        "swiglu": "",
        "geglu": "approximate",
        "reglu": "",
    },
    "position": {
        "none": "",
        "sinusoidal": "",
        "learned": "",
        "alibi": "",
        "hard_alibi": "",
        "t5": "buckets max_distance",
        "rope": "theta pairing fraction scaling factor original_context low_freq_factor "
        "high_freq_factor beta_fast beta_slow",
    },
    "attention": {
        "causal": ATTENTION,
        "grouped": ATTENTION,
        "multi_query": ATTENTION,
        "sliding": ATTENTION,
    },
    "init": {
        "cs336": "zero_outputs",
        "gpt2": "zero_outputs",
        "xavier": "zero_outputs distribution",
        "small": "zero_outputs",
        "wang": "zero_outputs",
        "scaled": "zero_outputs",
        "mup": "zero_outputs base_width base_heads",
    },
}


def test_the_components_and_their_options_are_these() -> None:
    listed = {
        axis: {name: " ".join(list(component(axis, name).defaults())[1:]) for name in names(axis)}
        for axis in AXES
    }
    assert listed == CATALOGUE


def test_the_optimizers_and_schedules_are_these() -> None:
    assert names("optimizer") == ["adamw", "muon", "lion", "sgd"]
    assert names("schedule") == ["cosine", "linear", "wsd", "constant", "inverse_sqrt"]
