"""An average of the weights: what it is, that it is kept, and that training does not see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.commands import Answer
from harness.runs import lasting, result, rows, state
from torch import nn

from lm_experiments.errors import InputError
from lm_experiments.evaluation import EncodedText, score
from lm_experiments.study.open_run import open_run
from lm_experiments.training.averages import AverageWeights, share_of
from lm_experiments.training.config import TrainerConfig

RunOf = Callable[..., Path]
WORDS = (
    "trainer.max_steps=6",
    "trainer.val_every=3",
    "trainer.val_tokens=64",
    # One tensor under two names.
    "model.tie_embeddings=true",
)


def averaged(values: list[float], **options: Any) -> float | None:
    """Return the average of a weight that has these values after steps 1, 2, ..."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    average = AverageWeights(TrainerConfig(max_steps=len(values), **options))
    for step, value in enumerate(values, 1):
        model.weight.data.fill_(value)
        at: Any = SimpleNamespace(global_step=step)
        average.on_train_batch_end(at, SimpleNamespace(model=model))
    return average.weights["weight"].item() if average.weights else None


def test_swa_is_the_mean_of_the_weights_towards_the_end() -> None:
    values = [9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 1.0, 4.0]
    assert averaged(values, average="swa") == pytest.approx(2.5)
    assert averaged(values, average="swa", average_start=0.5) == pytest.approx(23 / 4)
    assert averaged(values, average="swa", average_start=0.0) == pytest.approx(59 / 8)


def test_ema_is_by_hand_what_its_formula_says() -> None:
    values, expected = [5.0, 1.0, 3.0], 5.0
    for n, value in enumerate(values, 1):
        kept = min(0.15, (n - 1) / (n + 8))
        expected = kept * expected + (1 - kept) * value
    assert averaged(values, average="ema", average_decay=0.15) == pytest.approx(expected)
    # Late enough the decay is the one that was asked for, whatever bfloat16 could tell apart.
    assert share_of(100_000, TrainerConfig(average="ema")) == pytest.approx(0.001)


def test_the_weights_come_back_bit_for_bit() -> None:
    model = nn.Linear(3, 2)
    last = {name: weight.clone() for name, weight in model.state_dict().items()}
    average = AverageWeights(TrainerConfig(average="ema"))
    average.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    with pytest.raises(KeyboardInterrupt), average.in_place_of(model):
        assert model.weight.tolist() == [[1.0] * 3] * 2
        raise KeyboardInterrupt
    assert all(torch.equal(weight, last[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize(
    "words",
    [
        ["average=ema"],
        pytest.param(["average=swa", "average_start=0.5"], marks=pytest.mark.slow),
    ],
)
def test_training_does_not_see_it_and_its_loss_stands_beside(
    run_of: RunOf, command: Callable[..., Answer], words: list[str]
) -> None:
    plain = run_of("name=plain", *WORDS)
    run = run_of("name=averaged", *WORDS, *(f"trainer.{word}" for word in words))
    one, other = state(plain)["state_dict"], state(run)["state_dict"]
    assert all(torch.equal(one[name], other[name]) for name in one)
    values, wanted = result(run), result(plain)
    for key in ("val_loss", "curve_loss", "bits_per_byte", "outcome", "best_val_loss"):
        assert values[key] == wanted[key]
    assert wanted["average_val_loss"] is None
    assert values["config_hash"] != wanted["config_hash"]
    # The losses of documents are by the last weights.
    assert (run / "documents.npz").read_bytes() == (plain / "documents.npz").read_bytes()
    # It is the loss of the average that the checkpoint keeps.
    opened = open_run(run)
    found = score(opened.model(average=True), EncodedText.of(opened.data.val), 16)
    assert values["average_val_loss"] == pytest.approx(found.loss, rel=1e-5)
    assert values["average_val_loss"] != values["val_loss"]
    logged = [row["average/loss"] for row in rows(run) if "average/loss" in row]
    assert logged == [values["average_val_loss"]]
    assert f"  {values['average_val_loss']:.4f}  " in command("evaluate", run, "--average").out
    assert "holds no average" in command("generate", plain, "--average").err
    with pytest.raises(InputError, match="holds no average of the weights; train with trainer"):
        open_run(plain).model(average=True)


def test_a_run_that_went_on_has_the_average_of_one_that_never_stopped(
    run_of: RunOf, train: Callable[..., Any]
) -> None:
    words = (*WORDS, "trainer.average=ema", "trainer.checkpoint_every=2", "name=one")
    run = run_of(*words, "trainer.keep=checkpoints")
    before, average = lasting(run), open_run(run).model(average=True).state_dict()
    (run / "result.json").unlink()
    # What step 6 left is damaged, and the run goes on from step 4.
    newest = max((run / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    assert train(*words).code == 0
    assert lasting(run) == before
    again = open_run(run).model(average=True).state_dict()
    assert all(torch.equal(average[name], again[name]) for name in average)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": "mean"}, "trainer.average=mean is not known; it can be none, ema, swa"),
        ({"average_decay": 0.9}, "average_decay=0.9 is not read .*; type trainer.average=ema to"),
        (
            {"average": "ema", "average_start": 0.5},
            "average_start=0.5 is not read with trainer.average=ema; type trainer.average=swa to",
        ),
        ({"average": "swa", "average_start": 1.0}, "average_start=1 must be 0 or more, and below"),
        (
            {"average": "ema", "devices": 2, "strategy": "fsdp"},
            "needs whole weights, which trainer.strategy=fsdp cuts .* type trainer.strategy=ddp",
        ),
    ],
)
def test_what_cannot_be_averaged_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainerConfig(**options)
