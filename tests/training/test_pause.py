"""A run that rests after a step goes on as the run that it would have been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness.runs import lasting, result, rows, state

from lm_experiments.errors import InputError
from lm_experiments.launch.local import train_in_this_process
from lm_experiments.launch.task import Task
from lm_experiments.rundir.metrics import loss_at
from lm_experiments.rundir.pause import pause_of, write_pause

WORDS = ("trainer.max_steps=7", "trainer.val_every=2", "model.dropout=0.1")


def test_a_run_that_rested_is_the_one_that_never_did(run_of: Callable[..., Path]) -> None:
    whole = run_of(*WORDS, "name=whole", "trainer.keep=checkpoints")
    run = run_of(*WORDS, "name=rested", "trainer.keep=checkpoints")
    for path in (*(run / "checkpoints").iterdir(), run / "result.json", run / "metrics.jsonl"):
        path.unlink()
    for step in (3, 4):
        write_pause(run, step)
        assert train_in_this_process(Task(run)).exit_status == 0
        values = result(run)
        assert (values["status"], values["steps"], values["val_loss"]) == (
            "interrupted",
            step,
            None,
        )
        assert values["curve_loss"] == loss_at(run / "metrics.jsonl", step)
    write_pause(run, None)
    assert train_in_this_process(Task(run)).exit_status == 0
    assert lasting(run) == lasting(whole)
    own, other = state(run), state(whole)
    weights = own["state_dict"]
    assert all(torch.equal(weights[name], other["state_dict"][name]) for name in weights)
    # Its curve has a point more at the step where it rested.
    assert [row for row in rows(run) if row["step"] != 3] == [
        row for row in rows(whole) if row["step"] != 3
    ]


def test_a_damaged_pause_says_what_to_do(tmp_path: Path) -> None:
    assert pause_of(tmp_path) is None
    (tmp_path / "pause.json").write_text('{"step": 0}')
    with pytest.raises(InputError, match="remove it, and the same command writes it again"):
        pause_of(tmp_path)
