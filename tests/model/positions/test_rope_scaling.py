"""RoPE scaling: values computed by hand, and the frequencies of transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lm_experiments.model.positions import PositionSizes, RoPE, RoPEOptions
from lm_experiments.model.positions.scaling import SCALINGS

YARN = {"scaling": "yarn", "factor": 4.0, "original_context": 256}
LLAMA3 = {"scaling": "llama3", "factor": 8.0, "original_context": 256}


def rope(width: int = 64, length: int = 64, **options: Any) -> RoPE:
    return RoPE(RoPEOptions(**options), PositionSizes(width, 1, width, length))


def frequencies(**options: Any) -> Tensor:
    """The angles by which pairs turn at position 1, where none exceeds pi."""
    cos, sin = rope(**options).table[:, 1].double()
    return torch.atan2(sin, cos)


def test_linear_scaling_reads_positions_closer_together() -> None:
    plain, scaled = rope(length=16), rope(length=64, scaling="linear", factor=4.0)
    torch.testing.assert_close(scaled.table[:, ::4], plain.table)


def test_ntk_keeps_the_fastest_pair_and_slows_the_slowest_by_the_factor() -> None:
    plain, scaled = frequencies(), frequencies(scaling="ntk", factor=4.0)
    assert scaled[0].item() == plain[0].item() == pytest.approx(1)
    assert float(plain[-1] / scaled[-1]) == pytest.approx(4, rel=1e-5)
    torch.testing.assert_close(scaled, frequencies(theta=1e4 * 4 ** (64 / 62)))


@pytest.mark.parametrize("name", [name for name in SCALINGS if name != "none"])
def test_a_scaling_without_its_factor_is_refused(name: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"scaling={name} needs model.position.factor; type for example "
        r"model.position.factor=4\.$",
    ):
        rope(scaling=name, original_context=64 if name in ("yarn", "llama3") else None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scaling": "dynamic"}, "dynamic is not known; it can be none, linear, ntk, yarn, llama3"),
        ({"factor": 4.0}, "factor=4 is not read by model.position.scaling=none; .*: linear, ntk,"),
        ({**YARN, "original_context": None}, "yarn needs model.position.original_context; type"),
        ({**LLAMA3, "beta_slow": 2.0}, "beta_slow=2 is not read by .*=llama3; .* reads it: yarn"),
        ({"scaling": "ntk", "factor": 2.0, "original_context": 8}, "original_context=8 is not re"),
        ({"scaling": "linear", "factor": 0.5}, "factor=0.5 must be a number, 1 or more"),
        ({"scaling": "linear", "factor": math.nan}, "factor=nan must be a number, 1 or more"),
        ({**YARN, "original_context": 0}, "original_context=0 must be a number, 1 or more"),
        ({**YARN, "beta_slow": 0.0}, "beta_slow=0 must be a number, above 0"),
        ({**YARN, "beta_slow": 32.0}, "beta_slow=32 must be below model.position.beta_fast=32"),
        ({**LLAMA3, "high_freq_factor": 0.5}, "low_freq_factor=1 must be below .*factor=0.5"),
        ({**YARN, "theta": 1.0}, "needs a model.position.theta above 1, not 1"),
        ({"scaling": "ntk", "factor": 2.0, "width": 2}, "type model.position.scaling=linear"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rope(**options)


@pytest.mark.parametrize("fraction", [0.25, 1.0])
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({"scaling": "linear", "factor": 3.0}, {"rope_type": "linear", "factor": 3.0}),
        # Theirs grows with the length: at twice the trained one, with a factor of 1, by 2.
        ({"scaling": "ntk", "factor": 2.0}, {"rope_type": "dynamic", "factor": 1.0}),
        (YARN, {"rope_type": "yarn"}),
        ({**YARN, "beta_fast": 20.0, "beta_slow": 2.0}, {"rope_type": "yarn"}),
        ({**LLAMA3, "low_freq_factor": 2.0, "high_freq_factor": 5.0}, {"rope_type": "llama3"}),
    ],
)
def test_the_angles_are_those_of_transformers(
    options: dict[str, Any], theirs: dict[str, Any], theta: float, fraction: float
) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = {
        **{key: value for key, value in options.items() if key not in ("scaling", "factor")},
        **{"factor": options["factor"], "rope_theta": theta, "partial_rotary_factor": fraction},
        **theirs,
    }
    if "original_context" in parameters:
        parameters["original_max_position_embeddings"] = parameters.pop("original_context")
    config = transformers.LlamaConfig(
        hidden_size=128, num_attention_heads=2, max_position_embeddings=256
    )
    config.rope_parameters = parameters
    initialise = ROPE_INIT_FUNCTIONS[theirs["rope_type"]]
    expected, scale = initialise(config, torch.device("cpu"), seq_len=512)
    rotations = torch.outer(torch.arange(256.0), expected)
    found = rope(64, 256, theta=theta, fraction=fraction, **options).table
    # Their angles are float32, which at 255 are exact to 1.5e-5.
    torch.testing.assert_close(found[0], rotations.cos() * scale, atol=6e-5, rtol=0)
    torch.testing.assert_close(found[1], rotations.sin() * scale, atol=6e-5, rtol=0)
