"""Initialisation: the sizes each scheme promises, and tensors that arms share bit for bit."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from small_models import EVERY_COMPONENT, tiny_model
from torch import Tensor, nn

from lm_experiments.model import Choice, keyed_seed
from lm_experiments.model.init import CS336Init, GPT2Init, initialise
from lm_experiments.model.registry import NoOptions, names

TRUNCATED_AT_3 = 0.98658


def drawn(scheme: CS336Init | GPT2Init, shape: tuple[int, int], role: str) -> Tensor:
    weight = torch.empty(shape)
    generator = torch.Generator().manual_seed(1)
    if role == "embedding":
        scheme.embedding(weight, generator)
    else:
        scheme.linear(weight, role, generator)
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
    weight = drawn(CS336Init(NoOptions(), 4), shape, role)
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
    weight = drawn(GPT2Init(NoOptions(), 12), (512, 1536), role)
    assert weight.std().item() == pytest.approx(std, rel=3e-3)
    assert weight.abs().max().item() > 4 * std


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
    first = tiny_model(seed=3).state_dict()
    torch.manual_seed(99)
    second = tiny_model(seed=3).state_dict()
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


SHARING = [(axis, name) for axis, name in EVERY_COMPONENT if axis != "init"]


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


def test_learned_positions_are_drawn_from_the_seed() -> None:
    first, again, other = (tiny_model(seed=s, position="learned").position for s in (0, 0, 1))
    assert torch.equal(first.weight, again.weight)  # type: ignore[arg-type]
    assert not torch.equal(first.weight, other.weight)  # type: ignore[arg-type]


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
        initialise(nn.Sequential(Unfillable()), Choice("cs336"), 2, 0)


def test_tied_embeddings_are_drawn_once_as_an_embedding() -> None:
    tied = tiny_model(seed=5, tie_embeddings=True)
    assert torch.equal(tied.head.weight, baseline()["embedding.weight"])
