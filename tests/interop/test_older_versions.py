"""What an exported folder says to versions of transformers before 5, in their spelling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.data import train_tokenizer
from lm_experiments.interop.folders import read_folder, write_folder
from lm_experiments.model import Choice, ModelConfig, build_model, choose
from lm_experiments.registry import NoOptions

NEOX: dict[str, Any] = {
    "norm": choose("norm", "layernorm", {}),
    "ffn": choose("ffn", "gelu", {}),
    "placement": choose("placement", "parallel_two", {}),
    "bias": True,
}


def rope(**options: Any) -> Choice:
    return choose("position", "rope", {"theta": 5e4, "pairing": "half", **options})


@pytest.mark.parametrize(
    ("changes", "older"),
    [
        ({"position": rope()}, {"rope_theta": 5e4, "rope_scaling": None}),
        (
            {"position": rope(scaling="linear", factor=4.0)},
            {
                "rope_theta": 5e4,
                "rope_scaling": {"rope_type": "linear", "rope_theta": 5e4, "factor": 4.0},
            },
        ),
        (
            {"position": rope(fraction=0.5), **NEOX},
            {"rotary_emb_base": 5e4, "rotary_pct": 0.5, "rope_scaling": None},
        ),
        ({"position": choose("position", "learned", {}), **NEOX, "placement": Choice("pre")}, {}),
    ],
)
def test_rope_is_written_in_both_spellings(
    tmp_path: Path, changes: dict[str, Any], older: dict[str, Any]
) -> None:
    size = {"d_model": 32, "n_layers": 1, "n_heads": 2, "context_length": 16, "vocab_size": 257}
    config = ModelConfig(**size, **changes)  # type: ignore[arg-type]
    tokenizer = train_tokenizer((), choose("tokenizer", "bytes", {}))
    write_folder(tmp_path / "out", build_model(config, 0), tokenizer)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {key: written.get(key) for key in older} == older
    assert ("rope_theta" in written) == (config.position.name == "rope")
    names = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert names["tokenizer_class"] == "PreTrainedTokenizerFast"
    back = read_folder(tmp_path / "out")[0].position
    assert (back.name, back.options or NoOptions()) == (
        config.position.name,
        config.position.options or NoOptions(),
    )
