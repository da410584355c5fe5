"""YAML written by libyaml: the same bytes as PyYAML's own, and the same values back."""

from __future__ import annotations

import random

import pytest
import yaml

from lm_experiments.rundir import yaml_text
from lm_experiments.rundir.yaml_text import dump_yaml, load_yaml

PIECES = [
    *"aB '\"\n\t\\:#-[{,&*%@`|>é中\u2028\x85\xa0\ufeff\x07😀",
    *("  ", "1e-3", "null", "~", "yes", "word ", "a-long-word-that-has-nowhere-to-be-broken"),
]
PLAIN = [piece for piece in PIECES if piece.isascii() and piece.isprintable()]


@pytest.mark.parametrize("seed", range(8))
def test_bytes_and_values_are_those_of_pyyaml(seed: int) -> None:
    draw = random.Random(seed)
    for pieces in (PIECES, PLAIN) * 5:
        text = "".join(draw.choice(pieces) for _ in range(draw.randrange(40)))
        values = {
            "text": text,
            "list": [text, 1, 2.5e-7, None, True],
            "inner": {"of": [], "text": text},
        }
        plain = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        assert dump_yaml(values) == plain
        assert load_yaml(plain) == yaml.safe_load(plain)


def test_a_configuration_is_written_by_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    if not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.delattr(yaml, "SafeDumper")
    assert yaml_text.dump_yaml({"trainer": {"max_steps": 300, "lr": 1e-3}}).startswith("trainer:")
