"""Each optimizer in whole runs: it learns, and a run that was cut off ends as if it was not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lm_experiments.registry import names
from lm_experiments.training.checkpoints import newest_checkpoint
from lm_experiments.training.optimizers import optimizers_that

# With muP at twice its base width there are groups with rates of their own.
OPTIMIZERS = names("optimizer")
SUITS_MUP = optimizers_that("scale_invariant")
ARMS = [
    *([f"optimizer={name}"] for name in OPTIMIZERS),
    *([f"optimizer={name}", "init=mup", "model.init.base_width=8"] for name in SUITS_MUP),
]


def only_run(name: str) -> Path:
    [run] = [path for path in Path("runs", name).iterdir() if path.is_dir()]
    return run


def rows(name: str) -> list[dict[str, Any]]:
    lines = (only_run(name) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def checkpoint(name: str) -> dict[str, Any]:
    path = newest_checkpoint(only_run(name))
    assert path is not None
    saved: dict[str, Any] = torch.load(path, weights_only=True)
    return saved


def tensors(value: Any) -> list[Tensor]:
    """Return all tensors in a nested value, in order."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [tensor for part in parts for tensor in tensors(part)]


@pytest.mark.parametrize("arm", ARMS, ids=" ".join)
def test_a_run_that_was_cut_off_ends_with_the_same_weights_and_state(
    train: Callable[..., Any], arm: list[str]
) -> None:
    command = [*arm, "name=cut", "trainer.max_steps=6", "trainer.checkpoint_every=3"]
    command.append("trainer.keep=checkpoints")
    assert train(*command).code == 0
    straight, logged = checkpoint("cut"), rows("cut")
    newest = newest_checkpoint(only_run("cut"))
    assert newest is not None
    newest.unlink()
    (only_run("cut") / "result.json").unlink()
    assert checkpoint("cut")["global_step"] == 3
    assert train(*command).code == 0
    again = checkpoint("cut")
    assert again["global_step"] == 6
    for part in ("state_dict", "optimizer_states"):
        wanted, found = tensors(straight[part]), tensors(again[part])
        assert len(wanted) == len(found) > 0
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    [optimizer] = again["optimizer_states"]
    rate = [row["train/learning_rate"] for row in logged if "train/learning_rate" in row][-1]
    for group in optimizer["param_groups"]:
        assert group["lr"] == rate * group["lr_scale"]
    scales = {group["lr_scale"] for group in optimizer["param_groups"]}
    assert scales == ({1.0, 0.5} if "init=mup" in arm else {1.0})
    losses = [[row.get("train/loss") for row in part] for part in (logged, rows("cut"))]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_learns_in_mixed_precision_and_logs_the_norm_before_clipping(
    train: Callable[..., Any], name: str
) -> None:
    command = [f"optimizer={name}", "optimizer.clip_norm=1e-3", "trainer.precision=bf16-mixed"]
    assert train(*command, "name=mixed", "trainer.max_steps=10").code == 0
    assert train(f"optimizer={name}", "optimizer.clip_norm=0", "name=exact").code == 0
    trained = [row for row in rows("mixed") if "train/loss" in row]
    [first, *_] = [row for row in rows("exact") if "train/loss" in row]
    norm = trained[0]["train/gradient_norm"]
    assert norm == pytest.approx(first["train/gradient_norm"], rel=0.05)
    assert norm > 0.1
    if name != "sgd":
        # The others make steps of a set size, however small the gradient.
        assert trained[-1]["train/loss"] < trained[0]["train/loss"] - 0.01


def test_mup_with_an_optimizer_it_has_no_rates_for_is_one_sentence(
    train: Callable[..., Any],
) -> None:
    answer = train("init=mup", "optimizer=sgd")
    assert answer.code != 0
    assert "init=mup scales learning rates for optimizers like Adam" in answer.err
    assert not Path("runs").exists()
