"""The validation curve on a part of the set: the loss of the table is the one it has without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness.runs import lasting, result, rows, state

from lm_experiments.data import IGNORE_INDEX, EvaluationBatches, prepare
from lm_experiments.evaluation.loss import score
from lm_experiments.evaluation.texts import EncodedText
from lm_experiments.rundir.documents import read_document_losses
from lm_experiments.training.checkpoints import load_model
from lm_experiments.training.config import load_config

RunOf = Callable[..., Path]
WORDS = ("trainer.max_steps=5", "trainer.val_every=2", "trainer.checkpoint_every=2")
# The context is 16: four windows.
PART = "trainer.val_tokens=64"
WHOLE = "trainer.val_tokens=null"


def points(run: Path, key: str = "val/loss") -> list[tuple[int, float]]:
    return [(row["step"], row[key]) for row in rows(run) if key in row]


def test_the_part_changes_the_curve_and_nothing_else(run_of: RunOf) -> None:
    part, whole = run_of("name=part", *WORDS, PART), run_of("name=whole", *WORDS, WHOLE)
    values, wanted = result(part), result(whole)
    for key in ("config_hash", "val_loss", "val_tokens", "bits_per_byte", "perplexity", "outcome"):
        assert values[key] == wanted[key]
    one, other = read_document_losses(part), read_document_losses(whole)
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.sums, other.sums)
    weights = [state(run)["state_dict"] for run in (part, whole)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    # Each point of the curve is over the same part.
    assert [step for step, _ in points(part)] == [step for step, _ in points(whole)] == [2, 4, 5]
    assert {tokens for _, tokens in points(part, "val/tokens")} == {64}
    assert {tokens for _, tokens in points(whole, "val/tokens")} == {wanted["val_tokens"]}
    assert points(part, "whole/loss") == [(5, values["val_loss"])]
    assert points(whole, "whole/loss") == []
    assert (values["curve_loss"], values["curve_tokens"]) == (points(part)[-1][1], 64)
    assert values["best_val_loss"] == min(loss for _, loss in points(part))
    assert values["curve_loss"] == pytest.approx(loss_of_part(part), rel=1e-6)
    assert values["curve_loss"] != values["val_loss"]


def loss_of_part(run: Path) -> float:
    config = load_config(run)
    data = prepare(config.data.corpus, config.tokenizer, Path(config.cache_dir).expanduser())
    starts = EvaluationBatches(data.val.tokens, 16, 99, most=64).starts(0)
    model, text = load_model(run, config), np.asarray(data.val.tokens[:]).astype(np.int64)
    pieces = [EncodedText(text[start : start + 17], None) for start in starts.tolist()]
    return sum(score(model, piece, 16).loss for piece in pieces) / len(pieces)


def test_a_run_that_goes_on_is_the_same(run_of: RunOf, train: Callable[..., Any]) -> None:
    run = run_of("name=part", *WORDS, PART)
    lines, values = rows(run), lasting(run)
    for removed in (0, 1):
        (run / "result.json").unlink()
        for path in sorted((run / "checkpoints").iterdir(), reverse=True)[:removed]:
            path.unlink()
        assert train("name=part", *WORDS, PART).code == 0
        assert lasting(run) == values
        assert rows(run) == lines


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize(("most", "windows"), [(1, 1), (16, 4), (17, 5), (400, 10), (None, 10)])
def test_the_part_is_evenly_spaced_whatever_the_processes(
    world_size: int, most: int | None, windows: int
) -> None:
    stream = np.arange(39, dtype=np.uint16)
    parts = [EvaluationBatches(stream, 4, 2, rank, world_size, most) for rank in range(world_size)]
    starts = [int(s) for part in parts for i in range(len(part)) for s in part.starts(i)]
    assert sorted(starts) == [4 * (i * 10 // windows) for i in range(windows)]
    targets = [t for part in parts for _, batch in part for t in batch[batch != IGNORE_INDEX]]
    assert len(targets) == len(set(map(int, targets)))


def test_what_is_not_a_number_of_tokens_is_refused(refused: Callable[..., str]) -> None:
    assert "trainer.val_tokens=0 must be 1 or more" in refused("train", "trainer.val_tokens=0")
