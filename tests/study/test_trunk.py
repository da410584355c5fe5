"""One trunk for the rungs of a ladder: fewer steps, the same runs, and it can be stopped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.runs import lasting, state
from test_rungs import PAIR, words

from lm_experiments.errors import InputError
from lm_experiments.launch.local import train_in_this_process
from lm_experiments.launch.task import Task
from lm_experiments.rundir.ladder import Ladder
from lm_experiments.rundir.metrics import append_row, read_rows
from lm_experiments.rundir.pause import pause_of, write_pause
from lm_experiments.rundir.results import (
    DONE,
    FAILED,
    INTERRUPTED,
    OK,
    Result,
    run_status,
    write_result,
)
from lm_experiments.rundir.study import read_study
from lm_experiments.study.trunk import climb, shared_steps
from lm_experiments.training.checkpoints import checkpoint_step, newest_checkpoint, write_whole
from lm_experiments.training.schedules import WSD, Constant, Cosine, Schedule

LADDER = ("ladder=budget", "study.ladder.steps=[8,16,32]", "study.ladder.trunk=true")


def of(schedule: Schedule, steps: int) -> Any:
    return SimpleNamespace(schedule=schedule, trainer=SimpleNamespace(max_steps=steps))


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        (WSD(warmup_steps=2), 80),
        (WSD(warmup_steps=2, decay_fraction=0.5), 50),
        # The warm-up is a tenth of each.
        (WSD(), 0),
        (Constant(warmup_steps=2), 100),
        (Cosine(warmup_steps=5), 5),
    ],
)
def test_runs_share_the_steps_of_equal_learning_rates(schedule: Schedule, steps: int) -> None:
    assert shared_steps(of(schedule, 100), of(schedule, 300)) == steps
    assert shared_steps(of(schedule, 300), of(schedule, 100)) == steps


def test_the_runs_are_those_without_a_trunk(train: Callable[..., Any], text_file: Path) -> None:
    Path("pair.yaml").write_text(PAIR + "overrides: [trainer.max_steps=16, trainer.val_every=4]")
    own = ["schedule=wsd", "trainer.keep=checkpoints", "model.dropout=0.1"]
    answer = train("-m", "study=pair.yaml", *words(text_file), *LADDER, *own, small=False)
    assert answer.code == 0, answer.text
    assert "one trunk: each goes on from where the one below starts to decay" in answer.text
    [folder] = Path("runs").iterdir()
    record = json.loads((folder / "sweep.json").read_text())
    by_arm = {row["arm"]: folder / row["directory"] for row in record["runs"]}
    assert len(by_arm) == 6
    for run in (by_arm[f"NoPE at {steps} steps"] for steps in (8, 16, 32)):
        alone = Path("alone") / run.name
        alone.mkdir(parents=True)
        for name in ("config.yaml", "identity.json"):
            shutil.copy(run / name, alone / name)
        assert train_in_this_process(Task(alone)).exit_status == 0
        assert_same_but_for_the_branch(run, alone)
    # Rows that were handed on have the very times of the rung below.
    speeds = [
        {row["step"]: row["train/tokens_per_second"] for row in read_rows(path, "train/loss")}
        for n in (8, 16, 32)
        if (path := by_arm[f"base at {n} steps"] / "metrics.jsonl")
    ]
    kept = [{n for n in one.keys() & two if one[n] == two[n]} for one, two in pairwise(speeds)]
    assert [max(steps) for steps in kept] == [6, 13]


def assert_same_but_for_the_branch(run: Path, alone: Path) -> None:
    """Compare two runs, of which one has a point of its curve more where it rested."""
    own, other = state(run), state(alone)
    weights = own["state_dict"]
    assert all(torch.equal(weights[name], other["state_dict"][name]) for name in weights)
    assert lasting(run) == lasting(alone)


@dataclass(frozen=True)
class Planned:
    """What a trunk uses of a planned run."""

    directory: Path
    max_steps: int
    below: Path | None = None
    begins: int = 0


@dataclass
class Training:
    """Trains by writing checkpoints; counts steps, fails runs, and may be killed after some."""

    kill_after: int = 1000
    failing: str = ""
    seen: list[str] = field(default_factory=list)
    steps: int = 0

    def __call__(self, runs: Sequence[Any]) -> None:
        for run in runs:
            if run_status(run.directory) in (DONE, FAILED):
                continue
            if len(self.seen) >= self.kill_after:
                raise KeyboardInterrupt
            newest = newest_checkpoint(run.directory)
            before = checkpoint_step(newest) if newest else 0
            last = pause_of(run.directory) or run.max_steps
            self.seen.append(f"{run.directory.name} {before}-{last}")
            if run.directory.name == self.failing:
                write_result(run.directory, Result(FAILED, "base", 0, steps=before))
                continue
            self.steps += last - before
            path = run.directory / "checkpoints" / f"step-{last:08d}.ckpt"
            path.parent.mkdir(exist_ok=True)
            write_whole({"step": last}, path)
            append_row(run.directory / "metrics.jsonl", {"step": last, "val/loss": 3.0})
            status = DONE if last == run.max_steps else INTERRUPTED
            write_result(run.directory, Result(status, "base", 0, outcome=OK, steps=last))


def rungs(folder: Path) -> list[Any]:
    found: list[Planned] = []
    for steps, begins in ((10, 0), (30, 8), (90, 24)):
        directory = folder / str(steps)
        directory.mkdir(parents=True, exist_ok=True)
        found.append(Planned(directory, steps, found[-1].directory if found else None, begins))
    return found


WHOLE = ["10 0-8", "30 8-24", "10 8-10", "30 24-30", "90 24-90"]


def test_every_step_of_the_trunk_is_trained_once(tmp_path: Path) -> None:
    training, runs = Training(), rungs(tmp_path)
    climb(runs, training)
    assert training.seen == WHOLE and training.steps == 8 + 16 + 2 + 6 + 66
    assert all(run_status(run.directory) == DONE for run in runs)
    steps = [row["step"] for row in read_rows(tmp_path / "90" / "metrics.jsonl")]
    assert steps == [8, 24, 90]
    # What has no trunk is trained as it is.
    plain = [Planned(run.directory, run.max_steps) for run in rungs(tmp_path / "plain")]
    training = Training()
    climb(plain, training)  # type: ignore[arg-type]
    assert training.seen == ["10 0-10", "30 0-30", "90 0-90"]


@pytest.mark.parametrize("killed", range(6))
def test_a_command_that_was_stopped_trains_what_is_missing(tmp_path: Path, killed: int) -> None:
    first, second, runs = Training(kill_after=killed), Training(), rungs(tmp_path)
    with suppress(KeyboardInterrupt):
        climb(runs, first)
    for run in runs:
        # As the next command does with every run that is missing.
        write_pause(run.directory, None)
    climb([run for run in runs if run_status(run.directory) != DONE], second)
    assert first.seen + second.seen == WHOLE


def test_above_a_run_that_failed_a_rung_is_trained_alone(tmp_path: Path) -> None:
    training, runs = Training(failing="10"), rungs(tmp_path)
    climb(runs, training)
    assert training.seen == ["10 0-8", "30 0-24", "30 24-30", "90 24-90"]


def test_a_rung_that_is_added_is_trained_alone(tmp_path: Path) -> None:
    runs = rungs(tmp_path)
    climb(runs[:2], Training())
    training = Training()
    climb([runs[2]], training)
    assert training.seen == ["90 0-90"]


def test_what_is_trained_elsewhere_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"10 has not come to step 8, .*; the same command"):
        climb(rungs(tmp_path), lambda runs: None)


def test_what_has_no_trunk_is_refused(
    refused: Callable[..., str], text_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR)
    pair = ("-m", f"study={path}", *words(text_file), *LADDER)
    told = refused("train", *pair)
    assert "learning rate of 'base at 8 steps' for 1 steps alone" in told
    assert "schedule=cosine follows the length of a run; type schedule=wsd." in told
    told = refused("train", *pair, "schedule=wsd", "trainer.average=swa")
    assert "averages its weights" in told and "type trainer.average=none" in told
    follows = "optimizer.weight_decay=${trainer.max_steps}"
    told = refused("train", *pair, "schedule=wsd", follows)
    assert "differs from 'base at 8 steps' in optimizer.weight_decay; set it for all" in told
    with pytest.raises(InputError, match=r"trunk=true goes with study\.ladder\.by=budget, and not"):
        Ladder("size", trunk=True)
    values = {"name": "it", "baseline": "a", "arms": {"a": [], "b": ["norm=none"]}}
    grid = {"grid": [1e-3, 3e-3, 1e-2]}
    with pytest.raises(InputError, match=r"trunk=true does not go with study\.tune, which may"):
        read_study({**values, "ladder": {"trunk": True}, "tune": grid})
