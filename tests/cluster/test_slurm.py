"""Jobs through submitit: its local executor, and SLURM's commands played by stand-ins."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_slurm import install
from harness.processes import Command, Place, until
from harness.runs import result
from spans import at_once, notes

from lm_experiments.launch import slurm

pytest.importorskip("submitit")
PINNED = ("trainer.accelerator=cpu", "resources.cpus=1")


def job_of(place: Place, task: int) -> list[int]:
    """Return the Python process in which a task of the array has been started."""
    found = []
    for pid in place.living():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        mine = f"SLURM_ARRAY_TASK_ID={task}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        if b"submitit.core._submit" in words and mine:
            found.append(pid)
    return found


@pytest.mark.slow
def test_one_job_per_run_in_an_array(place: Place) -> None:
    environment = install(place.folder)
    answer = place.train(
        "placement=pre,post", "hydra/launcher=slurm", *PINNED, "name=j", **environment
    )
    assert answer.code == 0, answer.text
    assert "hydra/launcher=slurm: one job per run" in answer.text
    assert "2 done, 0 failed" in answer.text
    script = (place.folder / "slurm" / "script.sh").read_text()
    assert "#SBATCH --array=0-1%" in script
    assert "#SBATCH --cpus-per-task=1" in script
    assert "#SBATCH --signal=USR2@120" in script
    assert "gpus" not in script
    assert {result(p.parent)["threads"] for p in place.folder.glob("runs/j/*/result.json")} == {1}


@pytest.mark.slow
def test_a_preempted_job_is_queued_again_and_continues(place: Place) -> None:
    environment = {**install(place.folder), "PAUSE": "0.02"}
    words = ("code_paths=[code.py]", "norm=noting", "trainer.max_steps=60", "seed=0,1")
    with place.start(*words, "hydra/launcher=slurm", *PINNED, "name=p", **environment) as command:
        run = _training(place, command)
        [job] = job_of(place, 0)
        os.kill(job, signal.SIGUSR2)
        answer = command.wait(150)
    assert answer.code == 0, answer.text
    assert (run / "train.log").read_text().count(" trains ") == 2
    assert result(run)["steps"] == 60
    steps = [line.split(",")[0] for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [step for step in steps if step]
    assert trained[0] == '{"step": 1' and len(set(trained)) == 60
    log = (run / "train.log").read_text()
    assert "SystemExit" in log, "the run was not told to save itself"


def _training(place: Place, command: Command) -> Path:
    """Wait until the first run has made some steps; return it."""

    def stepped() -> bool:
        files = list(place.folder.glob("runs/p/*-s0-*/metrics.jsonl"))
        return bool(files) and files[0].read_text().count("\n") >= 3

    until(stepped, 120, "the first run to train", command)
    return next(place.folder.glob("runs/p/*-s0-*"))


class Told:
    """A job of which sacct tells one state after another; its result comes with the last."""

    def __init__(self, folder: Path, *states: bool) -> None:
        self.states = list(states)
        self.paths = SimpleNamespace(result_pickle=folder / "result.pkl")
        self.watcher = SimpleNamespace(clear=lambda: None)

    def done(self, force_check: bool = False) -> bool:
        ended = self.states.pop(0) if self.states else True
        if not self.states:
            self.paths.result_pickle.touch()
        return ended

    def wait(self) -> None:
        while not self.done():
            pass


@pytest.mark.parametrize(
    "states", [(True, True, False, False, True), (True, True, True), (False, True, False, True)]
)
def test_a_job_that_is_told_to_have_ended_may_go_on(
    states: tuple[bool, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "LOOK_EVERY", 0)
    job = Told(tmp_path, *states)
    slurm._wait_for(job)
    assert job.states == []


def test_a_job_that_has_ended_without_a_result_is_waited_for_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "LOOK_EVERY", 0)
    monkeypatch.setattr(slurm, "AGAIN_SECONDS", 0.01)
    job = Told(tmp_path, *[True] * 10**6)
    slurm._wait_for(job)
    assert not job.paths.result_pickle.exists()


def test_what_sbatch_says_is_told_in_one_sentence(place: Place) -> None:
    environment = install(place.folder)
    sbatch = place.folder / "bin" / "sbatch"
    sbatch.write_text(
        "#!/bin/sh\necho 'sbatch: error: invalid partition specified: x' >&2\nexit 1\n"
    )
    answer = place.train(
        "placement=pre,post", "hydra/launcher=slurm", *PINNED, "name=b", **environment
    )
    assert answer.code == 2, answer.text
    assert "error: SLURM did not take the jobs: sbatch: error: invalid partition" in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.slow
def test_the_local_executor_trains_all_at_once(place: Place) -> None:
    words = ("code_paths=[code.py]", "norm=noting", "seed=0,1,2")
    answer = place.train(*words, "hydra/launcher=submitit_local", "name=l", PAUSE="0.5")
    assert answer.code == 0, answer.text
    assert "3 done, 0 failed" in answer.text
    # The command itself, which times some steps, was not told of GPUs; jobs were told of none.
    spans = [span for span in notes(place).values() if span[0] == ""]
    assert len(spans) == 3
    assert at_once(spans) == 3


def test_a_precision_that_cannot_be_looked_up_is_asked_for(place: Place) -> None:
    words = ("placement=pre,post", "hydra/launcher=slurm", "name=x")
    answer = place.train(*words, seconds=60, **install(place.folder))
    assert answer.code == 2, answer.text
    assert "trainer.precision=auto cannot be looked up here" in answer.text
