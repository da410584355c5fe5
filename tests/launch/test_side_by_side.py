"""Runs side by side on this machine: the results of one after another, and how they are told."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.commands import Answer
from harness.runs import assert_same, result

from lm_experiments.launch import local, sweep_line
from lm_experiments.launch.endings import Ending
from lm_experiments.launch.local import LocalRuns, train_side_by_side
from lm_experiments.launch.schedule import train_all
from lm_experiments.launch.sweep_line import SweepLine
from lm_experiments.launch.task import Policy, Task
from lm_experiments.rundir.identity import Identity
from lm_experiments.training import fit
from lm_experiments.training.config import TrainerConfig

Train = Callable[..., Answer]
PAIR = ("-m", "placement=pre,post")
# On any machine there is room for both runs at once.
ROOM = "resources.cpus=0.5"


def runs(name: str) -> list[Path]:
    return sorted(path for path in Path("runs", name).iterdir() if path.is_dir())


def test_results_equal_those_of_one_thread_alone(train: Train) -> None:
    beside = train(*PAIR, ROOM, "trainer.threads=null", "name=beside")
    assert beside.code == 0, beside.text
    lines = beside.out.splitlines()
    assert any(" runs at once, 1 thread each, on cpu" in line for line in lines)
    started = [number for number, line in enumerate(lines) if ": started, " in line]
    ended = [number for number, line in enumerate(lines) if ": ok, validation loss" in line]
    # Both were at work at once, and each has a line when it starts and when it ends.
    assert max(started) < min(ended) and len(started) == len(ended) == 2
    assert lines[started[1]].endswith(": started, 2 of 2")
    assert any(line.startswith("  2 of 2 done") for line in lines)
    alone = train(*PAIR, "resources.at_once=1", "trainer.threads=1", "name=alone")
    assert alone.code == 0, alone.text
    assert "one run after another; on cpu with 1 thread" in alone.out
    assert "started" not in alone.out
    for one, other in zip(runs("beside"), runs("alone"), strict=True):
        assert_same(one, other)
        assert result(one)["threads"] == 1
        # The processes of both had logs of their own.
        assert (one / "train.log").read_text().count(" trains ") == 1


def test_a_sweep_keeps_the_threads_it_began_with(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lm_experiments.launch.machine.cores", lambda: 8)
    monkeypatch.setattr("lm_experiments.launch.launcher.cores", lambda: 8)
    words = ("-m", "trainer.threads=null", "name=it", "trainer.max_steps=1")

    def planned(*more: str) -> str:
        answer = train(*words, *more, "plan=true")
        assert answer.code == 0, answer.text
        return answer.out

    assert train(*words, "seed=0,1").code == 0
    assert json.loads(Path("runs/it/sweep.json").read_text())["threads"] == 4
    assert [result(run)["threads"] for run in runs("it")] == [4, 4]
    # By themselves, four runs would get two of the eight cores each.
    assert "2 runs at once, 4 threads each" in planned("seed=0,1,2,3")
    assert "4 runs at once, 2 threads each" in planned("seed=0,1,2,3", "name=new")
    # What is typed counts.
    assert "2 runs at once, 3 threads each" in planned("seed=0,1,2,3", "resources.cpus=3")
    assert "4 runs at once, 1 thread each" in planned("seed=0,1,2,3", "trainer.threads=1")


def test_a_sweep_of_one_run_has_all_cores(train: Train) -> None:
    answer = train("-m", "trainer.threads=null", "plan=true")
    assert answer.code == 0, answer.text
    assert f"one run; on cpu with {torch.get_num_threads()} thread" in answer.out


class Scripted:
    """Runs that end as they are told to, two at once."""

    def __init__(self, *endings: str) -> None:
        self.endings = list(endings)
        self.open: list[Task] = []
        self.most = 0
        self.stopped = False
        self.last: list[bool] = []

    @property
    def are_open(self) -> bool:
        return bool(self.open)

    @property
    def have_room(self) -> bool:
        return len(self.open) < 2

    def start(self, task: Task, ends_sweep: bool) -> None:
        self.open.append(task)
        self.last.append(ends_sweep)
        self.most = max(self.most, len(self.open))

    def next(self) -> tuple[Task, Ending] | None:
        if not (status := self.endings.pop(0)):
            return None
        return self.open.pop(0), Ending(status, signal.SIGTERM if status == "interrupted" else 0)

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    found = [Task(tmp_path / name) for name in ("a", "b", "c")]
    for task in found:
        task.directory.mkdir()
    return found


def test_all_runs_are_trained_two_at_once_and_failed_ones_again(tasks: list[Task]) -> None:
    scripted = Scripted("", "failed", "done", "failed", "done")
    train_all(scripted, tasks, Policy(1, False, str))
    assert (scripted.most, scripted.endings, scripted.stopped) == (2, [], False)
    # What is lost with its machine is started three times again.
    scripted = Scripted(*["lost"] * 12)
    train_all(scripted, tasks, Policy(0, False, str))
    assert (scripted.endings, scripted.last) == ([], [False] * 12)


@pytest.mark.parametrize(("status", "code"), [("failed", 1), ("interrupted", 143)])
def test_what_ends_a_sweep_saves_the_runs_beside_it(
    tasks: list[Task], status: str, code: int
) -> None:
    scripted = Scripted(status, "done", "done")
    with pytest.raises(SystemExit) as stop:
        train_all(scripted, tasks, Policy(0, True, str))
    assert (stop.value.code, scripted.stopped, scripted.last) == (code, True, [True] * 2)
    assert len(scripted.endings) == 2


def test_a_signal_between_runs_is_not_lost(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when no run is at work that could tell of it."""

    def next_run(self: LocalRuns) -> tuple[Task, Ending]:
        os.kill(os.getpid(), signal.SIGTERM)
        self._free.add(0)
        return tasks[0], Ending("elsewhere")

    monkeypatch.setattr(LocalRuns, "next", next_run)
    monkeypatch.setattr(LocalRuns, "are_open", property(lambda self: not self.signals.number))
    monkeypatch.setattr(LocalRuns, "_begin", lambda self, task, claim: self._free.clear())
    monkeypatch.setattr(local, "start_server", lambda: None)
    with pytest.raises(SystemExit) as stop:
        train_side_by_side(tasks[:1], Policy(0, False, str))
    assert stop.value.code == 143


def test_a_terminal_has_one_line_for_all_runs(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep_line.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    now = [100.0]
    monkeypatch.setattr(sweep_line.time, "monotonic", lambda: now[0])
    line = SweepLine(tasks, lambda directory: "1 of 3 done, 2 left; about 5 s left")
    line.begun(tasks[1])
    line.show(wanted=True)
    line.show(wanted=True)
    out, err = capsys.readouterr()
    assert out == "b: started, 2 of 3\n"
    # Not again so soon, and no wider than the terminal.
    assert err == "\r\x1b[K1 of 3 done, 2 left"
    line.show(wanted=False)
    line.show(wanted=False)
    assert capsys.readouterr().err == "\r\x1b[K"


@pytest.mark.parametrize(("terminal", "beside"), [(True, True), (True, False), (False, True)])
def test_a_run_beside_others_leaves_the_terminal_to_that_line(
    terminal: bool, beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit.sys.stderr, "isatty", lambda: terminal)
    config: Any = SimpleNamespace(trainer=TrainerConfig(max_steps=1))
    run = fit.Run(tmp_path, config, Identity("c", "d"), is_beside=beside)
    assert run.has_line == (not terminal or not beside)


def test_a_terminal_that_is_no_more_or_a_damaged_sweep_ends_nothing(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def standing(directory: Path) -> Any:
        raise OSError("gone")

    monkeypatch.setattr(sweep_line.sys.stderr, "isatty", lambda: True)
    SweepLine(tasks, standing).show(wanted=True)
    assert capsys.readouterr() == ("", "")
