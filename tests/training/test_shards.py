"""Checkpoints in shards, read without the processes that wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lm_experiments.rundir.atomic import remove, remove_unfinished
from lm_experiments.training.checkpoints import (
    check_writable,
    checkpoint_to_go_on_from,
    checkpoints_of,
    files_of,
    is_whole,
    keep_weights,
    newest_checkpoint,
    open_checkpoint,
    write_whole,
)
from lm_experiments.training.shards import Rows, names_of, whole

WEIGHTS = torch.arange(20.0).reshape(5, 4)
NAMES = ("['state_dict']['model.w']", "['optimizer_states'][0]['state'][0]['exp_avg']")


def checkpoint(run: Path, step: int) -> Path:
    """Write a checkpoint of 5 rows in three shards, as torch.chunk cuts them: 2, 2 and 1."""
    folder = run / "checkpoints" / f"step-{step:08d}.shards"
    folder.mkdir(parents=True)
    rest = {
        "state_dict": {"model.w": None},
        "optimizer_states": [{"state": {0: {"step": torch.tensor(step), "exp_avg": None}}}],
    }
    for number, name in enumerate(names_of(3)):
        rows = [(value * step).chunk(3)[number].clone() for value in (WEIGHTS, -WEIGHTS)]
        shard = {"rows": dict(zip(NAMES, rows, strict=True)), "rest": None if number else rest}
        write_whole(shard, folder / name)
    return folder


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("harm", [Path.unlink, cut_off, flip])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_with_a_harmed_shard_the_checkpoint_before_it_is_taken(
    harm: Any, number: int, tmp_path: Path
) -> None:
    before, newest = checkpoint(tmp_path, 2), checkpoint(tmp_path, 4)
    assert checkpoint_to_go_on_from(tmp_path, 9) == newest
    harm(files_of(newest)[number])
    assert not is_whole(newest)
    assert newest_checkpoint(tmp_path) == before
    check_writable(tmp_path, before)
    assert checkpoints_of(tmp_path) == [before]
    for file in files_of(before):
        file.unlink()
    assert newest_checkpoint(tmp_path) is None


def test_rows_are_taken_from_the_shards_that_have_them(tmp_path: Path) -> None:
    opened = open_checkpoint(checkpoint(tmp_path, 1))
    rows = opened["state_dict"]["model.w"]
    assert isinstance(rows, Rows)
    for start in range(6):
        for stop in range(start, 6):
            assert torch.equal(rows.between(start, stop), WEIGHTS[start:stop])
    state = whole(opened)["optimizer_states"][0]["state"][0]
    assert torch.equal(state["exp_avg"], -WEIGHTS)
    assert state["step"] == 1


def test_of_a_run_that_is_done_one_plain_file_stays(tmp_path: Path) -> None:
    checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 4)
    for _ in range(2):
        keep_weights(tmp_path)
        [left] = (tmp_path / "checkpoints").iterdir()
        assert left.name == "step-00000004.ckpt"
        assert is_whole(left)
        saved = torch.load(left, weights_only=True)
        assert saved["optimizer_states"] == []
        assert torch.equal(saved["state_dict"]["model.w"], WEIGHTS * 4)


def test_a_file_comes_before_the_shards_that_it_was_made_of(tmp_path: Path) -> None:
    """A kill between the two left both."""
    folder = checkpoint(tmp_path, 4)
    file = folder.with_suffix(".ckpt")
    write_whole({"state_dict": {}, "optimizer_states": []}, file)
    assert checkpoints_of(tmp_path) == [file, folder]
    keep_weights(tmp_path)
    assert checkpoints_of(tmp_path) == [file]


def test_what_a_kill_left_of_a_folder_goes(tmp_path: Path, monkeypatch: Any) -> None:
    folder = checkpoint(tmp_path, 4)

    def killed(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("shutil.rmtree", killed)
        remove(folder)
    assert newest_checkpoint(tmp_path) is None
    assert len(list(folder.parent.iterdir())) == 1
    remove_unfinished(folder.parent)
    assert list(folder.parent.iterdir()) == []
