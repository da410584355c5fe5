"""``scripts/status.py``: plain lines in a pipe, a table in a terminal, a watch that ends."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from harness.commands import ROOT
from rich.console import Console

from lm_experiments.cli import status as status_view
from lm_experiments.report.collect import Run
from lm_experiments.report.progress import RunStatus, sweep_status
from lm_experiments.rundir.metrics import write_rows
from lm_experiments.rundir.results import Result, RunError, write_result
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, read_sweep, write_sweep


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """A sweep of which one run is done, one failed, one interrupted, and many wait."""
    folder = tmp_path / "runs" / "grid"
    names = ["good-s0", "bad-s0", "cut-s0", *(f"next-s{i}" for i in range(9))]
    for name in names[:3]:
        (folder / name).mkdir(parents=True)
        (folder / name / "config.yaml").write_text("trainer:\n  max_steps: 2000\n")
    done = Result("done", "good", 0, outcome="ok", steps=2000, val_loss=3.25, seconds=120.0)
    write_result(folder / "good-s0", done)
    error = RunError("RuntimeError", "this [norm] is broken")
    write_result(folder / "bad-s0", Result("failed", "bad", 0, error=error))
    row = {"step": 1000, "train/loss": 4.5, "train/tokens_per_second": 1234.5, "tokens": 16000}
    write_rows(folder / "cut-s0" / "metrics.jsonl", [row])
    rows = [SweepRow(name.split("-")[0], int(name[-1]), name) for name in names]
    write_sweep(folder, SweepRecord("grid", "python scripts/train.py -m a=[1]", runs=rows))
    return folder


def finish(folder: Path) -> None:
    """Let every run of the sweep be done."""
    for run in sweep_status(folder).runs:
        run.run.directory.mkdir(exist_ok=True)
        result = Result("done", run.run.arm, 0, outcome="ok", steps=2000, val_loss=3.0)
        write_result(run.run.directory, result)


def test_in_a_pipe_each_run_is_a_line_and_the_sum_follows(grid: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/status.py"), str(grid)],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "20", "PATH": ""},
        cwd=ROOT,
    )
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        *("done", "good", "s0", "step", "2,000", "of", "2,000"),
        *("val", "3.2500", "in", "2", "min"),
    ]
    assert lines[2].split() == [
        *("interrupted", "cut", "s0", "step", "1,000", "of", "2,000"),
        *("train", "4.5000", "1,234", "tokens/s", "about", "13", "s", "left"),
    ]
    assert lines[3].split() == ["waiting", "next", "s0"]
    # Half of the interrupted run, and nine that wait, at the times measured.
    assert lines[12].startswith("grid: 1 of 12 done, 1 failed, 10 left; about ")
    log = grid / "bad-s0" / "train.log"
    reason = f"bad s0 failed: RuntimeError: this [norm] is broken (traceback in {log})"
    assert lines[13] == reason
    assert lines[-1].strip() == "python scripts/train.py -m a=[1]"


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"outcome": "ok", "val_loss": 3.25}, "val 3.2500"),
        ({"outcome": "degraded", "val_loss": 3.25}, "val 3.2500 degraded"),
        ({"outcome": "failed-at-init"}, "failed-at-init"),
        ({"train_loss": 4.5}, "train 4.5000"),
        ({"train_loss": 4.5, "val_loss": 4.25}, "val 4.2500"),
        ({}, ""),
    ],
)
def test_the_loss_is_shown_with_an_outcome_that_is_not_ok(known: Any, words: str) -> None:
    result = Result("done", "a", 0, outcome=known.pop("outcome", None))
    run = Run(SweepRow("a", 0, "a-s0"), Path("a-s0"), "done", result)
    assert status_view._loss(RunStatus(run, **known)) == words


def test_while_a_run_is_going_on_no_second_command_is_proposed(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FileLock(grid / "cut-s0" / ".lock"):
        assert status_view.main([str(grid)]) == 0
    out = capsys.readouterr().out
    assert "running" in out
    assert "To continue" not in out
    finish(grid)
    assert status_view.main([str(grid)]) == 0
    out = capsys.readouterr().out
    assert "grid: 12 of 12 done." in out
    assert "To continue" not in out


def test_in_a_terminal_it_is_a_table_and_brackets_stay(grid: Path) -> None:
    record = read_sweep(grid)
    assert record is not None
    record.runs[0] = dataclasses.replace(record.runs[0], arm="norm=[rms,rms]")
    write_sweep(grid, record)
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    status_view.show(sweep_status(grid), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.split()[:3] == ["state", "run", "step"]
    assert "norm=[rms,rms] s0" in text
    assert "this [norm] is broken" in text
    assert "python scripts/train.py -m a=[1]" in text


def test_watching_ends_when_nothing_is_left(
    grid: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            finish(grid)

    monkeypatch.setattr(status_view.time, "sleep", wait)
    assert status_view.main([str(grid), "--watch", "0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert waits == [0.5, 0.5]
    assert len(lines) == 3
    assert lines[0].startswith("grid: 1 of 12 done")
    assert lines[2] == "grid: 12 of 12 done"


def test_a_watched_screen_is_renewed_and_keeps_to_the_terminals_height(
    grid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The name of the folder is so long that what stands below the runs takes a line more.
    grid = grid.rename(grid.with_name("grid" * 20))
    monkeypatch.setattr(status_view.time, "sleep", lambda seconds: finish(grid))
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=16)
    first = status_view._screen(sweep_status(grid), console)
    probe = Console(width=100, color_system=None)
    with probe.capture() as capture:
        probe.print(first)
    lines = capture.get().splitlines()
    assert len(lines) <= 16
    # What needs attention comes first; what is done can wait.
    assert lines[2].startswith("failed")
    assert any(line.startswith("... and ") for line in lines)
    assert any("1 of 12 done" in line for line in lines)
    status_view.watch(grid, 1.0, console)
    assert isinstance(console.file, io.StringIO)
    assert "12 of 12 done" in console.file.getvalue()


def test_ctrl_c_is_a_usual_end_of_watching(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(status_view.time, "sleep", interrupt)
    assert status_view.main([str(grid), "--watch", "1"]) == 0


@pytest.mark.parametrize(
    ("command", "folder", "proposed"),
    [
        ("train.py -m a=1", "runs/grid", "train.py -m a=1"),
        ("train.py -m 'a=[1, 2]'", "runs/other", "train.py -m 'a=[1, 2]' name=other"),
        ("train.py -m name=grid a=1", "runs/other", "train.py -m a=1 name=other"),
        ("train.py -m a=1", "moved/grid", "train.py -m a=1 runs_dir={}/moved"),
        ("train.py runs_dir={}/runs a=1", "runs/grid", "train.py runs_dir={}/runs a=1"),
        ("train.py runs_dir={}/runs a=1", "x/runs/grid", "train.py a=1 runs_dir={}/x/runs"),
        ("train.py runs_dir=../runs", "runs/b c", "train.py runs_dir=../runs 'name=b c'"),
    ],
)
def test_the_command_proposed_names_the_folder_as_it_is_now(
    grid: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
    folder: str,
    proposed: str,
) -> None:
    record = read_sweep(grid)
    assert record is not None
    write_sweep(grid, dataclasses.replace(record, command=command.format(tmp_path)))
    moved = tmp_path / folder
    moved.parent.mkdir(parents=True, exist_ok=True)
    grid.rename(moved)
    assert status_view.main([str(moved)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].strip() == proposed.format(tmp_path)
    assert f"{moved.name}: 1 of 12 done" in "\n".join(lines)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{}x"], "did you mean"),
        (["{}/good-s0"], "is a single run"),
        (["{}", "--watch", "0"], "--watch 0 must be a number of seconds above 0"),
        (["{}", "--watch", "nan"], "--watch nan must be"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_sentence(
    grid: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    sentence: str,
) -> None:
    assert status_view.main([word.format(grid) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_narrow_terminal_keeps_numbers_whole_and_names_apart(grid: Path, width: int) -> None:
    record = read_sweep(grid)
    assert record is not None
    long = "model.attention_pattern=[local,local,global] model.norm.eps=1e-06 ffn=swiglu"
    rows = [dataclasses.replace(row, arm=f"{long} {row.arm}") for row in record.runs]
    write_sweep(grid, dataclasses.replace(record, runs=rows))
    status = sweep_status(grid)
    view = status_view._fitted(status.runs, width)
    probe = Console(width=width, color_system=None)
    with probe.capture() as capture:
        probe.print(view.table)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in capture.get()
    # Waiting runs differ in their names alone.
    assert len(set(lines[2:])) == len(status.runs)
    for cell in ("val 3.2500", "step 1,000 of 2,000", "1,234 tokens/s"):
        title = {"v": "loss", "s": "step", "1": "speed"}[cell[0]]
        assert (cell in capture.get()) == (title not in view.dropped)
    assert any("about 13 s left" in line for line in lines)
    assert "loss" not in view.dropped
