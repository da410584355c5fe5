"""Debug modes: what they print, their exit status, and that nothing of them is a result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.study.command_config import DEBUG
from lm_experiments.study.debug import MODES


def test_a_batch_is_learned_by_heart(train: Callable[..., Any]) -> None:
    answer = train("debug=overfit", "data.batch_size=1", "optimizer.lr=0.02")
    assert answer.code == 0, answer.text
    assert "yes: the batch was learned by heart, from 5." in answer.out
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_batch_that_is_not_learned_is_said_so(train: Callable[..., Any]) -> None:
    answer = train("debug=overfit", "data.batch_size=1", "optimizer.lr=1e-7")
    assert answer.code == 1
    assert "no: the batch was not learned by heart" in answer.out
    assert "in 300 steps" in answer.out


def test_one_step_says_what_it_did(train: Callable[..., Any]) -> None:
    answer = train("debug=one_step")
    assert answer.code == 0, answer.text
    assert "256 tokens; the same batch after the step: loss" in answer.out
    assert not Path("runs").exists()


def test_a_trace_is_no_run(train: Callable[..., Any], command: Callable[..., Any]) -> None:
    answer = train("debug=profile", "trainer.threads=1")
    assert answer.code == 0, answer.text
    [trace] = Path("runs/debug").glob("*/trace.json")
    assert f"Wrote {trace.absolute()}" in answer.out or f"Wrote {trace}" in answer.out
    events = json.loads(trace.read_text())["traceEvents"]
    assert {f"step {number}" for number in (2, 3, 4)} <= {event.get("name") for event in events}
    assert command("table", "runs/debug").code == 2


def test_debug_is_for_one_run_in_a_known_mode(refused: Callable[..., str]) -> None:
    assert tuple(MODES) == DEBUG
    assert "debug=x is not known; it can be overfit" in refused("train", "debug=x", "logger=none")
    told = refused("train", "-m", "debug=overfit", "seed=0,1", "logger=none")
    assert "debug=overfit is for one run; leave out -m" in told
