"""Gated and ungated feed-forwards get the same number of weights, or a clear error."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lm_experiments.model import Choice, ModelConfig, count
from lm_experiments.model.feedforward import matched_width
from lm_experiments.registry import component, names


def with_matrices(matrices: int) -> list[str]:
    """Return the feed-forwards made of so many matrices."""
    layers: dict[str, Any] = {name: component("ffn", name).build for name in names("ffn")}
    return [name for name, layer in layers.items() if layer.matrices == matrices]


UNGATED, GATED = with_matrices(2), with_matrices(3)


def ffn_weights(name: str, d_model: int, d_ff: int, tolerance: float = 0.01) -> int:
    config = ModelConfig(
        d_model=d_model,
        n_layers=1,
        n_heads=1,
        d_ff=d_ff,
        ffn=Choice(name),
        match_tolerance=tolerance,
    )
    return count(config).parts["ffn"]


@pytest.mark.parametrize(
    ("d_ff", "tolerance", "width"),
    [
        (4096, 0.01, 2728),
        (2048, 0.01, 1364),
        (2048, 0.0003, 1365),
        (512, 0.01, 341),
        (384, 0.01, 256),
        (1, 0.5, 1),
        (3072, 0.01, 2048),
        (3072, 0.0, 2048),
        (2016, 0.01, 1344),
    ],
)
@pytest.mark.parametrize("name", ["swiglu", "bilinear"])
def test_gated_widths(name: str, d_ff: int, tolerance: float, width: int) -> None:
    assert matched_width(name, d_ff, tolerance) == width


def test_weights_at_d_model_512() -> None:
    assert ffn_weights("relu", 512, 2048) == 2_097_152
    assert ffn_weights("swiglu", 512, 2048, tolerance=0.0003) == 2_096_640


@pytest.mark.parametrize("d_model", [64, *range(128, 2049, 64)])
@pytest.mark.parametrize("name", GATED)
def test_every_gated_one_is_within_one_percent_of_an_ungated_one(name: str, d_model: int) -> None:
    width = matched_width(name, 4 * d_model, 0.01)
    assert abs(3 * width / (2 * 4 * d_model) - 1) <= (0.001 if d_model > 64 else 0.01)
    # Tensor cores need multiples of 8.
    if d_model >= 1024:
        assert width % 8 == 0


@pytest.mark.parametrize("name", UNGATED)
@pytest.mark.parametrize("d_ff", [100, 1030, 2048, 2049])
def test_an_ungated_one_is_exactly_as_wide_as_asked(name: str, d_ff: int) -> None:
    assert matched_width(name, d_ff, 0.01) == d_ff


def test_what_cannot_be_matched_is_an_error_naming_the_nearest_width() -> None:
    with pytest.raises(ValueError, match=r"nearest width, 1365, is off by -0\.024%"):
        matched_width("swiglu", 2048, 0.0001)


@pytest.mark.parametrize("d_ff", [5, 20, 25, 44, 61, 100, 2048])
def test_the_tolerance_the_error_suggests_is_enough(d_ff: int) -> None:
    with pytest.raises(ValueError) as caught:
        matched_width("swiglu", d_ff, 1e-6)
    suggested = re.search(r"match_tolerance=(\S+) or another", str(caught.value))
    assert suggested is not None
    assert matched_width("swiglu", d_ff, float(suggested[1])) > 0


def test_a_width_given_outright_is_built_as_given() -> None:
    config = ModelConfig(d_model=64, d_ff=256, ffn_width=100, ffn=Choice("swiglu"))
    assert config.width == 100


def test_without_matching_every_feed_forward_is_d_ff_wide() -> None:
    config = ModelConfig(d_model=64, d_ff=256, match="none", ffn=Choice("swiglu"))
    assert config.width == 256
