"""Which files of a run's folder are its checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from lm_experiments.training.checkpoints import check_writable, newest_checkpoint, write_whole


@pytest.mark.parametrize(
    "copy", ["step-00000004_old.ckpt", "step-00000010_old.ckpt", "step-9.ckpt", "step-last.ckpt"]
)
def test_copies_under_other_names_are_no_checkpoints(tmp_path: Path, copy: str) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (2, 4):
        write_whole({"step": torch.tensor(step)}, folder / f"step-{step:08d}.ckpt")
    shutil.copy(folder / "step-00000002.ckpt", folder / copy)
    newest = newest_checkpoint(tmp_path)
    assert newest == folder / "step-00000004.ckpt"
    check_writable(tmp_path, newest)
    assert (folder / copy).exists()
    assert len(list(folder.iterdir())) == 3
