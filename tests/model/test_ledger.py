"""Exact parameter and FLOP counts: public models, torch's FLOP counter, PaLM's formula."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_models import EVERY_COMPONENT, tiny_arm, tiny_batch, tiny_config
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lm_experiments.model import Choice, ModelConfig, build_model, choose, count

CS336 = ModelConfig(
    d_model=512, n_layers=4, n_heads=16, context_length=256, vocab_size=10_000, d_ff=2016
)


def gpt2(n_layers: int, d_model: int, n_heads: int, **changes: Any) -> ModelConfig:
    config = ModelConfig(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        context_length=1024,
        vocab_size=50_257,
        d_ff=4 * d_model,
        tie_embeddings=True,
        bias=True,
        norm=Choice("layernorm"),
        ffn=Choice("gelu"),
        position=Choice("learned"),
        init=Choice("gpt2"),
    )
    return dataclasses.replace(config, **changes)


def llama2(n_layers: int, d_model: int, n_heads: int, ffn_width: int) -> ModelConfig:
    return ModelConfig(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        context_length=4096,
        vocab_size=32_000,
        ffn_width=ffn_width,
    )


def with_component(config: ModelConfig, **names: str) -> ModelConfig:
    choices = {axis: Choice(name) for axis, name in names.items()}
    return dataclasses.replace(config, **choices)  # type: ignore[arg-type]


def test_cs336_base() -> None:
    ledger = count(CS336)
    assert ledger.ffn_width == 1344
    assert ledger.parameters == 22_696_448
    assert ledger.non_embedding == 17_576_448
    assert ledger.non_embedding - ledger.parts["head"] == 12_456_448
    assert ledger.forward_flops == 9_533_652_992
    assert ledger.training_flops_per_token == 111_722_496


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (with_component(dataclasses.replace(CS336, d_ff=2048), ffn="silu"), 22_827_520),
        (with_component(CS336, ffn="silu"), 22_696_448),
        (with_component(CS336, norm="none"), 22_691_840),
        (with_component(CS336, placement="post"), 22_696_448 - 512),
        (with_component(CS336, position="none"), 22_696_448),
        (with_component(CS336, position="learned"), 22_696_448 + 256 * 512),
        (with_component(CS336, norm="layernorm"), 22_696_448 + 9 * 512),
    ],
)
def test_cs336_arms(config: ModelConfig, parameters: int) -> None:
    assert count(config).parameters == parameters


def test_cs336_by_part() -> None:
    assert count(CS336).parts == {
        "embedding": 5_120_000,
        "position": 0,
        "attention": 4 * 4 * 512 * 512,
        "ffn": 4 * 3 * 512 * 1344,
        "norms": 9 * 512,
        "head": 5_120_000,
    }


def grouped(config: ModelConfig, kv_heads: int, **changes: Any) -> ModelConfig:
    attention = choose("attention", "grouped", {"kv_heads": kv_heads})
    return dataclasses.replace(config, attention=attention, **changes)


CS336_XL = dataclasses.replace(
    CS336, d_model=1600, n_layers=48, n_heads=25, vocab_size=50_257, ffn_width=6400
)
# Models by name: their parameters, and their forward FLOPs where those are published.
PUBLIC: dict[str, tuple[ModelConfig, int, int | None]] = {
    "gpt2": (gpt2(12, 768, 12), 124_439_808, 291_648_307_200),
    # RMSNorm stands for a LayerNorm without its shift: the same parameters.
    "gpt2 without biases": (
        gpt2(12, 768, 12, bias=False, norm=Choice("rmsnorm")),
        124_337_664,
        None,
    ),
    "gpt2-medium": (gpt2(24, 1024, 16), 354_823_168, 826_951_073_792),
    "gpt2-large": (gpt2(36, 1280, 20), 774_030_080, 1_774_570_700_800),
    "gpt2-xl": (gpt2(48, 1600, 25), 1_557_611_200, 3_506_703_564_800),
    "llama-2-7b": (llama2(32, 4096, 32, ffn_width=11_008), 6_738_415_616, 62_921_270_886_400),
    "llama-2-13b": (llama2(40, 5120, 40, ffn_width=13_824), 13_015_864_320, None),
    "llama-2-70b": (grouped(llama2(80, 8192, 64, ffn_width=28_672), 8), 68_976_648_192, None),
    "llama-3-8b": (
        grouped(llama2(32, 4096, 32, ffn_width=14_336), 8, vocab_size=128_256),
        8_030_261_248,
        None,
    ),
    "cs336 xl at 1024": (
        dataclasses.replace(CS336_XL, context_length=1024),
        2_127_057_600,
        4_513_336_524_800,
    ),
    "cs336 xl at 16384": (
        dataclasses.replace(CS336_XL, context_length=16_384),
        2_127_057_600,
        149_522_795_724_800,
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_models_have_their_published_counts(name: str) -> None:
    config, parameters, flops = PUBLIC[name]
    ledger = count(config)
    assert ledger.parameters == parameters
    assert flops is None or ledger.forward_flops == flops


def test_gpt2_small_counts_a_tied_head_once() -> None:
    tied = count(gpt2(12, 768, 12))
    untied = count(gpt2(12, 768, 12, tie_embeddings=False))
    assert tied.non_embedding == tied.parameters
    assert tied.parts["head"] == 0
    assert untied.parameters == 163_037_184
    assert untied.non_embedding == 163_037_184 - 50_257 * 768
    assert untied.forward_flops == tied.forward_flops


@pytest.mark.parametrize("config", [CS336, tiny_config()], ids=["cs336", "tiny"])
def test_palm_formula_differs_by_six_flops_for_each_norm_parameter(config: ModelConfig) -> None:
    ledger = count(config)
    palm = 6 * ledger.non_embedding + 12 * config.n_layers * config.d_model * config.context_length
    exact = 3 * ledger.forward_flops / config.context_length
    assert palm - exact == 6 * ledger.parts["norms"]
    if config is CS336:
        assert palm - exact == 27_648


@pytest.mark.parametrize(("axis", "name"), [c for c in EVERY_COMPONENT if c[1] != "sliding"])
def test_flops_are_those_torch_counts(axis: str, name: str) -> None:
    model = tiny_arm(axis, name)
    tokens, targets = tiny_batch(1)
    # The plain kernel is made of products the counter knows, over the full square.
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward, torch.no_grad():
            model(tokens)
        with FlopCounterMode(display=False) as both:
            F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten()).backward()  # type: ignore[no-untyped-call]
    ledger = count(model.config)
    assert forward.get_total_flops() == ledger.forward_flops
    assert both.get_total_flops() == 3 * ledger.forward_flops
    assert ledger.training_flops_per_token == both.get_total_flops() // 16


# What torch's counter sees beside the ledger's products, and what the ledger leaves out.
SAME_PRODUCTS: list[dict[str, Any]] = [
    {"attention": choose("attention", "causal", {"softcap": 5.0})},
    {"attention": choose("attention", "causal", {"qk_norm": "rmsnorm", "qk_norm_width": "model"})},
    {"attention": choose("attention", "causal", {"qk_norm": "l2"})},
    {"document_mask": True, "end_of_text": 3},
    {"position_pattern": ["rope", "none"]},
    {"head_width": 24},
    {"embedding_norm": True, "scale_embeddings": True, "logit_softcap": 5.0},
]


@pytest.mark.parametrize("changes", SAME_PRODUCTS, ids=str)
def test_options_cost_what_torch_counts(changes: dict[str, Any]) -> None:
    config = dataclasses.replace(tiny_config(), **changes)
    model = build_model(config, 0)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as forward, torch.no_grad():
        model(tiny_batch(1)[0])
    assert forward.get_total_flops() == count(config).forward_flops
    assert sum(p.numel() for p in model.parameters()) == count(config).parameters


@pytest.mark.parametrize("window", [1, 4, 15, 16])
def test_a_window_counts_as_its_share_of_the_causal_pairs(window: int) -> None:
    length, whole = 16, tiny_config()
    config = dataclasses.replace(
        whole, attention=choose("attention", "sliding", {"window": window})
    )
    causal = torch.ones(length, length).tril()
    share = causal.triu(1 - window).sum().item() / causal.sum().item()
    square = 4 * length * length * whole.d_model * whole.n_layers
    saved = count(whole).forward_flops - count(config).forward_flops
    assert saved == pytest.approx((1 - share) * square, abs=4 * whole.d_model * whole.n_layers)
    assert (saved == 0) == (window == length)


def test_layers_of_a_pattern_count_the_window_where_they_are_local() -> None:
    sliding = dataclasses.replace(tiny_config(), attention=Choice("sliding"))
    mixed = dataclasses.replace(sliding, attention_pattern=["local", "global"])
    counts = [count(config).forward_flops for config in (tiny_config(), mixed, sliding)]
    assert counts[0] - counts[1] == counts[1] - counts[2] > 0
