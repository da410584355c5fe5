"""Biases on the scores: ALiBi's slopes and T5's buckets, compared with transformers."""

from __future__ import annotations

import pytest
import torch
from small_models import tiny_batch, tiny_config, tiny_model
from torch import Tensor, nn

from lm_experiments.model import choose
from lm_experiments.model.positions import (
    ALiBi,
    HardALiBi,
    Position,
    PositionSizes,
    T5Bias,
    T5Options,
)
from lm_experiments.model.positions.relative import bucket, slopes
from lm_experiments.model.transformer import sketch_model
from lm_experiments.registry import NoOptions

POSITIONS = torch.arange(12)


def alibi(n_heads: int = 4) -> ALiBi:
    return ALiBi(NoOptions(), PositionSizes(64, n_heads, 16, 12))


def hard_alibi(n_heads: int = 4) -> HardALiBi:
    return HardALiBi(NoOptions(), PositionSizes(64, n_heads, 16, 12))


def t5(buckets: int = 8, max_distance: int = 20, d_model: int = 64) -> T5Bias:
    encoding = T5Bias(T5Options(buckets, max_distance), PositionSizes(d_model, 4, 16, 12))
    encoding.reset_parameters()
    return encoding


ENCODINGS = [alibi, hard_alibi, t5]


@pytest.mark.parametrize(
    ("n_heads", "expected"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (8, [2**-i for i in range(1, 9)]),
        (3, [2**-4, 2**-8, 2**-2]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
        (12, [2**-i for i in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
    ],
)
def test_slopes_of_any_number_of_heads(n_heads: int, expected: list[float]) -> None:
    assert slopes(n_heads) == pytest.approx(expected)


@pytest.mark.parametrize("n_heads", [1, 3, 8, 14, 112])
def test_slopes_are_those_of_bloom(n_heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 12), n_heads, torch.float32)
    # Theirs leaves out the query's position, which the softmax does not see.
    ours = alibi(n_heads).bias(torch.tensor([0]), POSITIONS)
    torch.testing.assert_close(ours, theirs)


def test_alibi_is_slope_times_distance() -> None:
    bias = alibi(2).bias(torch.tensor([5, 7]), torch.tensor([0, 5]))
    assert bias.tolist() == [
        [[-5 / 16, 0], [-7 / 16, -2 / 16]],
        [[-5 / 256, 0], [-7 / 256, -2 / 256]],
    ]


@pytest.mark.parametrize("n_heads", [2, 5, 8])
def test_hard_alibi_lets_head_i_see_its_nearest_positions(n_heads: int) -> None:
    bias = hard_alibi(n_heads).bias(POSITIONS, POSITIONS)
    seen = (bias == 0).tril().sum(-1)[:, -1].tolist()
    windowed = n_heads // 2
    assert seen == [*range(1, windowed + 1), *[12] * (n_heads - windowed)]
    # The nearest ones, as in the code of the paper: a band below the diagonal.
    for head in range(windowed):
        band = torch.ones(12, 12).tril().triu(-head).bool()
        assert torch.equal((bias[head] == 0).tril(), band)
    assert set(bias.unique().tolist()) == {-torch.inf, 0.0}


def test_a_head_with_a_window_gives_no_weight_beyond_it() -> None:
    model, (inputs, _) = tiny_model(position="hard_alibi", n_layers=1, n_heads=2), tiny_batch(2)
    attention = model.blocks[0].attention
    with torch.no_grad():
        # Without the head that sees all, a position knows of itself alone.
        attention.out.weight[:, attention.sizes.head_width :] = 0
        changed = inputs.clone()
        changed[:, :9] = 0
        assert torch.equal(model(changed)[:, 9:], model(inputs)[:, 9:])


def test_one_head_cannot_be_halved() -> None:
    with pytest.raises(ValueError, match=r"model\.n_heads=1; type model\.n_heads=2 or more"):
        hard_alibi(1)


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (5, 9), (2, 2)])
def test_buckets_are_those_of_t5(buckets: int, max_distance: int) -> None:
    t5_model = pytest.importorskip("transformers.models.t5.modeling_t5")
    distances = torch.arange(2 * max_distance)
    theirs = t5_model.T5Attention._relative_position_bucket(
        -distances, bidirectional=False, num_buckets=buckets, max_distance=max_distance
    )
    encoding = t5(buckets, max_distance)
    with torch.no_grad():
        encoding.weight.copy_(torch.arange(buckets)[:, None].expand(-1, 4))
    found = encoding.bias(distances, torch.tensor([0]))[0, :, 0]
    assert found.tolist() == theirs.tolist()


def test_buckets_are_exact_then_geometric_then_one() -> None:
    found = [bucket(d, T5Options(32, 128)) for d in (0, 1, 15, 16, 18, 19, 127, 128, 10**6)]
    assert found == [0, 1, 15, 16, 16, 17, 31, 31, 31]


def test_t5_starts_as_wide_as_its_embeddings_are_narrow() -> None:
    assert t5(32, 128, d_model=16).weight.std().item() == pytest.approx(1 / 4, rel=0.2)
    assert t5(32, 128, d_model=1600).weight.std().item() == pytest.approx(1 / 40, rel=0.2)


def test_every_bucket_in_reach_is_trained() -> None:
    model, (inputs, targets) = tiny_model(position="t5"), tiny_batch()
    model.loss(inputs, targets).backward()  # type: ignore[no-untyped-call]
    gradient = model.position.weight.grad
    assert isinstance(gradient, Tensor)
    # 16 positions are 16 distances, each of them a bucket; the others are out of reach.
    assert gradient[:16].abs().min() > 0
    assert torch.count_nonzero(gradient[16:]) == 0


@pytest.mark.parametrize("name", ["alibi", "hard_alibi", "t5"])
def test_what_the_bias_is_of_later_keys_does_not_count(name: str) -> None:
    model, (inputs, _) = tiny_model(position=name), tiny_batch(2)
    with torch.no_grad():
        first = model(inputs)
        changed = inputs.clone()
        changed[:, 9:] = 0
        torch.testing.assert_close(model(changed)[:, :9], first[:, :9], atol=1e-6, rtol=0)


@pytest.mark.parametrize("build", ENCODINGS)
def test_the_bias_depends_on_the_distance_alone(build: type[Position]) -> None:
    bias = build().bias  # type: ignore[call-arg]
    assert torch.equal(bias(POSITIONS, POSITIONS), bias(POSITIONS + 1000, POSITIONS + 1000))
    assert torch.equal(bias(POSITIONS[7:], POSITIONS), bias(POSITIONS, POSITIONS)[:, 7:])


@pytest.mark.parametrize("build", ENCODINGS)
def test_a_cast_leaves_the_bias_float32_and_its_distances_apart(build: type[Position]) -> None:
    encoding = build()  # type: ignore[call-arg]
    table = encoding.table
    nn.ModuleList([encoding]).to(torch.bfloat16)
    assert encoding.table is table
    assert encoding.bias(POSITIONS, POSITIONS).dtype == torch.float32  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": 1}, "buckets=1 must be at least 2"),
        ({"max_distance": 16}, "max_distance=16 must be above half of .*=32; type 17 or more"),
    ],
)
def test_t5_refuses_what_it_cannot_do(options: dict[str, int], message: str) -> None:
    config = tiny_config()
    with pytest.raises(ValueError, match=message):
        object.__setattr__(config, "position", choose("position", "t5", options))
        sketch_model(config)
