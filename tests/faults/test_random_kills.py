"""Fifty kills at random moments, each followed by the same command."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from harness.faults import fault_place
from harness.processes import Place, time_limit, until
from harness.runs import assert_same, rows

KILLS = 50
OPTIONS = (
    "model.dropout=0.1",
    "trainer.micro_batch_size=2",
    "trainer.max_steps=40",
    "trainer.val_every=9",
    "trainer.checkpoint_every=7",
)


@pytest.mark.slow
def test_fifty_random_kills_end_as_the_run_that_was_not_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(0)
    with time_limit(720):
        whole = fault_place(tmp_path / "whole")
        assert whole.train(*OPTIONS).code == 0
        last = len(rows(whole.run()))
        equal, reached = 0, set()
        for number in range(KILLS):
            place = fault_place(tmp_path / f"{number:02}")
            reached.add(killed_at(place, chance.randint(0, last), chance.uniform(0, 0.02)))
            answer = place.train(*OPTIONS)
            assert answer.code == 0, answer.text
            assert_same(place.run(), whole.run())
            assert place.litter() == []
            equal += 1
    with capsys.disabled():
        print(f"\n{equal} of {KILLS} bit-equal; killed after {sorted(reached)} logged rows")
    assert len(reached) > 10, "the kills were all at the same point"


def killed_at(place: Place, row: int, seconds: float) -> int:
    """Kill a run's whole group some time after it logged a row; return how many it logged."""
    with place.start(*OPTIONS) as command:
        until(lambda: logged(place) >= row or command.poll() is not None, 30, "a row", command)
        time.sleep(seconds if row else 25 * seconds)
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
        command.wait(10)
    return logged(place)


def logged(place: Place) -> int:
    logs = [run / "metrics.jsonl" for run in place.runs("single")]
    return sum(log.read_text().count("\n") for log in logs if log.exists())
