"""Randomness of a step depends on seed, step and position in the batch, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.rundir.results import Result, read_result

DRAWING = """
import torch
from lm_experiments.model import register
from lm_experiments.model.norms import RMSNorm, NormOptions


@register("norm", "drawing", NormOptions)
class Drawing(RMSNorm):
    \"\"\"Draws from the global generator.\"\"\"

    def forward(self, x):
        return super().forward(x) + 0.1 * torch.rand(x.shape)
"""


def result_of(name: str) -> Result:
    [run] = Path("runs", name).glob("*-s0-*")
    result = read_result(run)
    assert result is not None
    return result


def test_dropout_is_the_same_however_a_batch_is_cut(train: Callable[..., Any]) -> None:
    words = ("model.dropout=0.3", "data.batch_size=8")
    for size in (8, 4, 1):
        answer = train(*words, f"trainer.micro_batch_size={size}", f"name=cut{size}")
        assert answer.code == 0, answer.err
    whole, *parts = (result_of(f"cut{size}") for size in (8, 4, 1))
    for part in parts:
        assert part.config_hash == whole.config_hash
        assert part.val_loss == pytest.approx(whole.val_loss, abs=1e-5)
    # Without dropout the loss is another one, so that the masks above did something.
    assert train("data.batch_size=8", "name=none").code == 0
    assert result_of("none").val_loss != pytest.approx(whole.val_loss, abs=1e-5)


def test_code_of_the_users_own_draws_the_same_under_one_hash(train: Callable[..., Any]) -> None:
    Path("drawing.py").write_text(DRAWING)
    words = ("norm=drawing", "code_paths=[drawing.py]", "data.batch_size=8")
    for name, size in (("one", 8), ("two", 8), ("three", 4)):
        assert train(*words, f"name={name}", f"trainer.micro_batch_size={size}").code == 0
    one, two, three = map(result_of, ("one", "two", "three"))
    assert (one.config_hash, one.val_loss) == (two.config_hash, two.val_loss)
    # Here the draws do depend on the micro-batch, so it is another run.
    assert three.config_hash != one.config_hash
