"""Initialisation: the variances of each scheme, and bit-equal tensors across arms."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import pytest
import torch
from small_models import EVERY_COMPONENT, tiny_batch, tiny_config, tiny_model
from torch import Tensor, nn

from lm_experiments.model import ModelConfig, build_model, choose, keyed_seed
from lm_experiments.model.init import InitScheme, Multipliers, initialise, multipliers
from lm_experiments.registry import build, names

TRUNCATED_AT_3 = 0.98658


def scheme_of(name: str, options: dict[str, Any] | None = None, **sizes: int) -> InitScheme:
    config = ModelConfig(init=choose("init", name, options), **sizes)  # type: ignore[arg-type]
    scheme: InitScheme = build("init", config.init, config)
    return scheme


def drawn(scheme: InitScheme, shape: tuple[int, int], role: str) -> Tensor:
    weight = torch.empty(shape)
    generator = torch.Generator().manual_seed(1)
    scheme.fill(weight, role, generator)
    return weight


@pytest.mark.parametrize(
    ("role", "shape", "nominal"),
    [
        ("up", (512, 1536), math.sqrt(2 / 2048)),
        ("down", (512, 1536), math.sqrt(2 / 2048)),
        ("head", (2000, 500), math.sqrt(2 / 2500)),
        ("embedding", (2000, 500), 1.0),
    ],
)
def test_cs336_is_a_normal_cut_at_three_std(
    role: str, shape: tuple[int, int], nominal: float
) -> None:
    weight = drawn(scheme_of("cs336"), shape, role)
    assert weight.std().item() / nominal == pytest.approx(TRUNCATED_AT_3, abs=2e-3)
    assert 2.95 * nominal < weight.abs().max().item() <= 3 * nominal * (1 + 1e-6)
    assert abs(weight.mean().item()) < 0.005 * nominal


@pytest.mark.parametrize(
    ("role", "std"),
    [
        ("up", 0.02),
        ("head", 0.02),
        ("embedding", 0.02),
        ("down", 0.02 / math.sqrt(2 * 12)),
    ],
)
def test_gpt2_is_normal_and_smaller_where_it_writes_to_the_stream(role: str, std: float) -> None:
    weight = drawn(scheme_of("gpt2", n_layers=12), (512, 1536), role)
    assert weight.std().item() == pytest.approx(std, rel=3e-3)
    assert weight.abs().max().item() > 4 * std


# Std of up (1536 x 512), down (512 x 1536), head (2000 x 512) and embedding (2000 x 512), in a
# model of width 512 with 12 layers.
STDS = {
    "xavier": [math.sqrt(2 / 2048), math.sqrt(2 / 2048), math.sqrt(2 / 2512), 512**-0.5],
    "small": [math.sqrt(2 / 2560)] * 4,
    "wang": [math.sqrt(2 / 2560), 2 / (12 * math.sqrt(512)), *[math.sqrt(2 / 2560)] * 2],
    "scaled": [512**-0.5, (1536 * 24) ** -0.5, 512**-0.5, 1.0],
    "mup": [512**-0.5, 1536**-0.5, 128**-0.5, 1.0],
}


@pytest.mark.parametrize("name", STDS)
def test_the_std_of_each_scheme(name: str) -> None:
    scheme = scheme_of(name, d_model=512, n_layers=12, d_ff=1536)
    shapes = {"up": (1536, 512), "down": (512, 1536), "head": (2000, 512), "embedding": (2000, 512)}
    found = [drawn(scheme, shape, role).std().item() for role, shape in shapes.items()]
    assert found == pytest.approx(STDS[name], rel=5e-3)


def test_xavier_is_uniform_or_normal() -> None:
    std = math.sqrt(2 / 1024)
    for distribution, largest in (("uniform", math.sqrt(3)), ("normal", 4.9)):
        weight = drawn(scheme_of("xavier", {"distribution": distribution}), (512, 512), "up")
        assert weight.abs().max().item() / std == pytest.approx(largest, rel=0.1)
        assert weight.std().item() == pytest.approx(std, rel=5e-3)
    with pytest.raises(ValueError, match=r"distribution=gauss is not known; it can be uniform, "):
        scheme_of("xavier", {"distribution": "gauss"})


RESIDUAL = ("attention.out.weight", "ffn.down.weight")


@pytest.mark.parametrize("init", names("init"))
def test_with_zero_outputs_every_block_starts_as_the_identity(init: str) -> None:
    config = dataclasses.replace(tiny_config(), init=choose("init", init, {"zero_outputs": True}))
    zeroed, usual = build_model(config, 0).state_dict(), tiny_model(init=init).state_dict()
    for name, weight in zeroed.items():
        if name.endswith(RESIDUAL):
            assert torch.count_nonzero(weight) == 0
        elif init != "mup":
            assert torch.equal(weight, usual[name]), name
    assert usual["blocks.0.ffn.down.weight"].any()


SHRUNK = ("value.weight", "attention.out.weight", "up.weight", "gate.weight", "down.weight")


def test_deepnorm_shrinks_values_outputs_and_the_feed_forward_by_its_gain() -> None:
    deep = tiny_model(placement="deepnorm", n_layers=3).state_dict()
    post = tiny_model(placement="post", n_layers=3).state_dict()
    gain = (8 * 3) ** -0.25
    for name, weight in deep.items():
        factor = gain if name.endswith(SHRUNK) else 1.0
        torch.testing.assert_close(weight, post[name] * factor, msg=name)
    assert gain == pytest.approx(0.4518, abs=1e-4)


def test_only_mup_asks_for_more_than_initial_values() -> None:
    for name in names("init"):
        config = ModelConfig(d_model=512, n_heads=4, init=choose("init", name))
        if name == "mup":
            assert multipliers(config) == Multipliers(0.5, 0.25, 0.25)
        else:
            assert multipliers(config) == Multipliers()


@pytest.mark.parametrize("attention", names("attention"))
@pytest.mark.parametrize("sizes", [{}, {"head_width": 64}, {"n_heads": 3, "head_width": 10}])
def test_mup_at_its_base_is_the_ordinary_parametrisation(
    attention: str, sizes: dict[str, int]
) -> None:
    at_base = tiny_config(init="mup", attention=attention, **sizes)
    assert multipliers(at_base) == Multipliers()
    plain = build_model(dataclasses.replace(at_base, init=choose("init", "scaled")), 0)
    mup, tokens = build_model(at_base, 0), tiny_batch(2)[0]
    plain.load_state_dict(mup.state_dict())
    assert torch.equal(mup(tokens), plain(tokens))


def test_mup_scales_scores_by_what_a_head_has_grown() -> None:
    more_heads = {"base_width": 128, "base_heads": 2}
    config = ModelConfig(d_model=256, n_heads=4, init=choose("init", "mup", more_heads))
    assert multipliers(config) == Multipliers(1.0, 0.5, 0.5)
    fixed = ModelConfig(d_model=256, n_heads=4, head_width=48, init=choose("init", "mup"))
    assert multipliers(fixed) == Multipliers(1.0, 0.5, 0.5)
    with pytest.raises(ValueError, match=r"base_heads=2 has no effect with model.head_width=48"):
        multipliers(dataclasses.replace(fixed, init=choose("init", "mup", more_heads)))


@pytest.mark.parametrize("key", ["base_width", "base_heads"])
def test_a_base_of_nothing_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=rf"model.init.{key}=0 must be at least 1"):
        choose("init", "mup", {key: 0})


def test_gpt2_reaches_every_layer_of_a_model_by_its_role() -> None:
    model = tiny_model(init="gpt2", n_layers=8, d_model=64, d_ff=256, bias=True)
    small = 0.02 / math.sqrt(16)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert torch.count_nonzero(parameter) == 0
        elif parameter.dim() == 2:
            residual = name.endswith(("attention.out.weight", "ffn.down.weight"))
            assert parameter.std().item() == pytest.approx(small if residual else 0.02, rel=0.08)


def test_the_same_seed_builds_the_same_model_whatever_the_global_generator_did() -> None:
    first = tiny_model(seed=3, position="learned").state_dict()
    torch.manual_seed(99)
    second = tiny_model(seed=3, position="learned").state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_building_leaves_the_global_generator_where_it_was() -> None:
    before = torch.get_rng_state()
    tiny_model(position="learned")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("init", names("init"))
def test_another_seed_changes_every_matrix(init: str) -> None:
    first = tiny_model(seed=0, position="learned", init=init).state_dict()
    second = tiny_model(seed=1, position="learned", init=init).state_dict()
    matrices = [key for key in first if first[key].dim() == 2]
    assert not any(torch.equal(first[key], second[key]) for key in matrices)


def test_no_two_matrices_of_one_shape_are_equal() -> None:
    weights = [p for p in tiny_model().parameters() if p.shape == (32, 32)]
    assert len(weights) == 8
    for i, weight in enumerate(weights):
        assert not any(torch.equal(weight, other) for other in weights[:i])


@functools.cache
def baseline() -> dict[str, Tensor]:
    """Return the tensors of the baseline that arms are compared with."""
    return tiny_model(seed=5).state_dict()


# DeepNorm shrinks what it shares.
SHARING = [(axis, name) for axis, name in EVERY_COMPONENT if axis != "init" and name != "deepnorm"]


@pytest.mark.parametrize(("axis", "name"), SHARING)
def test_arms_of_one_seed_share_every_tensor_of_equal_name_and_shape(axis: str, name: str) -> None:
    arm = tiny_model(seed=5, **{axis: name}).state_dict()
    shared = [k for k in arm if k in baseline() and arm[k].shape == baseline()[k].shape]
    assert {"embedding.weight", "head.weight"} <= set(shared)
    assert len(shared) >= 8
    assert all(torch.equal(arm[key], baseline()[key]) for key in shared)


def test_a_deeper_arm_starts_as_the_shallower_one_does() -> None:
    deeper = tiny_model(seed=5, n_layers=3).state_dict()
    assert all(torch.equal(deeper[key], baseline()[key]) for key in baseline())


def test_ungated_arms_share_their_feed_forward_too() -> None:
    relu = tiny_model(ffn="relu").state_dict()
    silu = tiny_model(ffn="silu").state_dict()
    assert relu.keys() == silu.keys()
    assert all(torch.equal(relu[key], silu[key]) for key in relu)


def test_keyed_seeds_differ_by_seed_and_by_every_part_of_the_key() -> None:
    keys: list[tuple[object, ...]] = [("a",), ("b",), ("a", 1), ("a", 2)]
    seeds = {keyed_seed(0, *key) for key in keys} | {keyed_seed(1, "a")}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_keyed_seed_is_the_same_in_every_process_and_version() -> None:
    # The first 63 bits of the SHA-256 of "0/embedding.weight".
    assert keyed_seed(0, "embedding.weight") == 8_395_375_654_029_022_469


class Unfillable(nn.Module):
    """Holds a parameter that nothing knows how to fill."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(3))


def test_a_parameter_that_nothing_fills_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"Unfillable holds parameters .* no reset_parameters"):
        initialise(nn.Sequential(Unfillable()), ModelConfig(), 0)


@pytest.mark.parametrize("init", names("init"))
def test_a_tied_table_is_drawn_once_at_a_scale_that_suits_a_head(init: str) -> None:
    usual = tiny_model(seed=5, init=init)
    tied = build_model(dataclasses.replace(usual.config, tie_embeddings=True), 5)
    tokens, targets = tiny_batch()
    loss = tied.loss(tokens, targets).item() / targets.numel()
    assert loss == pytest.approx(math.log(tied.config.vocab_size), abs=0.6)
    if usual.embedding.weight.std() < 0.9:
        assert torch.equal(tied.head.weight, usual.embedding.weight)
    else:
        stds = [model.head.weight.std().item() for model in (tied, usual)]
        assert stds[0] == pytest.approx(stds[1], rel=0.05)
