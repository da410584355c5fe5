"""What a run that is done leaves: its last weights, and nothing that only further steps need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness.runs import lasting, rows

from lm_experiments.training.checkpoints import (
    checkpoint_to_go_on_from,
    is_whole,
    keep_weights,
    load_model,
    write_whole,
)
from lm_experiments.training.config import load_config

RunOf = Callable[..., Path]
WORDS = ("name=kept", "trainer.max_steps=4", "trainer.checkpoint_every=1")


def saved(run: Path) -> list[dict[str, Any]]:
    """Return what its checkpoints hold, the oldest first."""
    paths = sorted((run / "checkpoints").iterdir())
    assert all(map(is_whole, paths))
    return [torch.load(path, weights_only=True) for path in paths]


def test_a_run_that_is_done_leaves_its_weights(run_of: RunOf, train: Callable[..., Any]) -> None:
    run = run_of(*WORDS)
    [last] = saved(run)
    assert (last["global_step"], last["optimizer_states"]) == (4, [])
    before, lines = lasting(run), rows(run)
    weights = load_model(run, load_config(run)).state_dict()
    # Without its result it goes on from there, and has nothing left to train.
    (run / "result.json").unlink()
    assert train(*WORDS).code == 0
    assert (lasting(run), rows(run)) == (before, lines)
    again = load_model(run, load_config(run)).state_dict()
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    (run / "result.json").unlink()
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    assert train(*WORDS, "trainer.keep=checkpoints").code == 0
    before_last, whole = saved(run)
    assert [len(before_last["optimizer_states"]), len(whole["optimizer_states"])] == [1, 1]
    assert all(torch.equal(whole["state_dict"][f"model.{n}"], weights[n]) for n in weights)


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / "checkpoints" / f"step-{step:08d}.ckpt"
    path.parent.mkdir(exist_ok=True)
    weights = {"model.w": torch.ones(1000) * step}
    moments = [{"state": {0: torch.zeros(2, 1000)}}]
    write_whole({"state_dict": weights, "history": {}, "optimizer_states": moments}, path)
    return path


def test_what_a_run_stopped_with_is_cut_to_its_weights_and_is_not_continued(tmp_path: Path) -> None:
    older, newest = checkpoint(tmp_path, 2), checkpoint(tmp_path, 4)
    size = newest.stat().st_size
    assert checkpoint_to_go_on_from(tmp_path, 9) == newest
    for _ in range(2):
        keep_weights(tmp_path)
        assert not older.exists()
        assert is_whole(newest)
        assert newest.stat().st_size < size - 4000
        assert torch.equal(saved(tmp_path)[0]["state_dict"]["model.w"], torch.ones(1000) * 4)
    assert checkpoint_to_go_on_from(tmp_path, 9) is None
    assert checkpoint_to_go_on_from(tmp_path, 4) == newest


def test_an_unknown_word_is_refused(refused: Callable[..., str]) -> None:
    assert "it can be weights, checkpoints" in refused("train", "trainer.keep=all")
