"""Where a sweep stands: states, progress, time left, and that looking costs and changes nothing."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.errors import InputError
from lm_experiments.report import progress
from lm_experiments.report.collect import read_run
from lm_experiments.report.progress import RunStatus, progress_line, sweep_status
from lm_experiments.rundir.claim import claimed
from lm_experiments.rundir.metrics import TAIL_BYTES, write_rows
from lm_experiments.rundir.results import Result, RunError, write_result
from lm_experiments.rundir.study import Chosen, Study, Tuning
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, write_sweep

CONFIG = "model:\n  d_model: 16\n  norm:\n    name: none\ntrainer:\n  max_steps: {}\nseed: 0\n"
Plan = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every row have been written just now."""
    monkeypatch.setattr(progress.time, "time", lambda: 0.0)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Record a plan of runs, given as directory names that end in the seed."""

    def record(*names: str, **more: Any) -> Path:
        folder = tmp_path / "runs" / "grid"
        folder.mkdir(parents=True, exist_ok=True)
        rows = [SweepRow(name.rsplit("-s", 1)[0], int(name[-1]), name) for name in names]
        record = SweepRecord("grid", "python scripts/train.py -m x=1,2", runs=rows)
        write_sweep(folder, dataclasses.replace(record, **more))
        return folder

    return record


def begin(run_dir: Path, *rows: dict[str, Any], max_steps: int = 100) -> Path:
    """Make a run directory as training does; with rows the run has got that far."""
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "config.yaml").write_text(CONFIG.format(max_steps))
    if rows:
        (run_dir / ".lock").touch()
        write_rows(run_dir / "metrics.jsonl", rows)
    return run_dir


def row(step: int, speed: float = 100.0) -> dict[str, Any]:
    """Return a logged row of a run whose steps have 10 tokens."""
    return {
        "step": step,
        "train/loss": 4.5,
        "train/tokens_per_second": speed,
        "tokens": step * 10,
    }


def end(run_dir: Path, status: str = "done", wall: float = 0.0, **more: Any) -> Path:
    """Give a run its result, ``wall`` seconds after the start of its process."""
    begin(run_dir, row(100))
    arm, _, seed = run_dir.name.rpartition("-s")
    result = Result(
        status=status,
        arm=arm,
        seed=int(seed),
        outcome="ok" if status == "done" else None,
        steps=100,
        val_loss=3.25,
        seconds=10.0,
        wall_seconds=wall,
        tokens_per_second=100.0,
    )
    write_result(run_dir, dataclasses.replace(result, **more))
    return run_dir


def states(folder: Path) -> dict[str, str]:
    return {status.run.directory.name: status.state for status in sweep_status(folder).runs}


def one(folder: Path, name: str) -> RunStatus:
    [found] = [found for found in sweep_status(folder).runs if found.run.directory.name == name]
    return found


def test_each_planned_run_has_its_state_in_declared_order(plan: Plan) -> None:
    folder = plan("z-s0", "a-s0", "b-s0", "c-s0", "d-s0", "e-s0", study=None)
    end(folder / "z-s0")
    error = RunError("RuntimeError", "broken\nnorm")
    end(folder / "a-s0", "failed", error=error, val_loss=None)
    begin(folder / "b-s0", row(20))
    begin(folder / "c-s0", row(40))
    begin(folder / "d-s0")
    with claimed(folder / "c-s0"):
        status = sweep_status(folder)
    assert [(found.run.directory.name, found.state) for found in status.runs] == [
        ("z-s0", "done"),
        ("a-s0", "failed"),
        ("b-s0", "interrupted"),
        ("c-s0", "running"),
        ("d-s0", "waiting"),
        ("e-s0", "waiting"),
    ]
    assert dict(status.counts) == {
        "running": 1,
        "failed": 1,
        "interrupted": 1,
        "waiting": 2,
        "ended": 0,
        "done": 1,
    }
    assert status.remaining == 4
    assert status.command == "python scripts/train.py -m x=1,2"
    failed, running = status.runs[1], status.runs[3]
    assert failed.run.error == "RuntimeError: broken norm"
    assert failed.traceback == folder / "a-s0" / "train.log"
    assert (running.step, running.max_steps, running.train_loss) == (40, 100, 4.5)
    assert status.runs[0].val_loss == 3.25


def test_what_an_ended_run_says_of_itself_yields_to_a_process_that_continues_it(
    plan: Plan,
) -> None:
    folder = plan("a-s0", "b-s0")
    for name, status in (("a-s0", "interrupted"), ("b-s0", "failed")):
        end(folder / name, status)
    assert states(folder) == {"a-s0": "interrupted", "b-s0": "failed"}
    with claimed(folder / "a-s0"), claimed(folder / "b-s0"):
        assert states(folder) == {"a-s0": "running", "b-s0": "running"}


def test_a_killed_run_is_interrupted_at_once_and_a_held_one_runs_however_old(plan: Plan) -> None:
    folder = plan("a-s0")
    begin(folder / "a-s0", row(10))
    lock = folder / "a-s0" / ".lock"
    code = (
        "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); "
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for path in (lock, folder / "a-s0" / "metrics.jsonl"):
            os.utime(path, (0, 0))
        assert states(folder) == {"a-s0": "running"}
        process.kill()
    assert states(folder) == {"a-s0": "interrupted"}


def test_looking_changes_nothing_and_two_who_look_do_not_see_each_other(plan: Plan) -> None:
    folder = plan("a-s0")
    begin(folder / "a-s0", row(10))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    before = [(path, path.stat().st_mtime_ns, path.read_bytes()) for path in files]
    code = (
        "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_SH); "
        "print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(folder / "a-s0" / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert states(folder) == {"a-s0": "interrupted"}
        process.kill()
    with claimed(folder / "a-s0"):
        pass
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert [path for path, *_ in before] == files
    assert before[1:] == [(p, p.stat().st_mtime_ns, p.read_bytes()) for p in files][1:]


def test_progress_is_read_from_the_end_of_a_long_file_cut_short(plan: Plan) -> None:
    folder = plan("a-s0")
    rows = [row(step) for step in range(1, 2001)]
    rows.insert(-1, {"step": 1999, "val/loss": 3.5, "val/tokens": 64})
    path = begin(folder / "a-s0", *rows, max_steps=4000) / "metrics.jsonl"
    assert path.stat().st_size > 2 * TAIL_BYTES
    with path.open("a") as file:
        file.write('{"step": 2001, "train/lo')
    run = one(folder, "a-s0")
    assert (run.step, run.max_steps) == (2000, 4000)
    assert (run.val_loss, run.val_tokens) == (3.5, 64)
    assert run.share_left == 0.5


def test_numbers_that_are_not_finite_are_words_and_a_blown_up_run_measures_nothing(
    plan: Plan,
) -> None:
    folder = plan("a-s0", "a-s1")
    end(folder / "a-s0", wall=12.0, outcome="non-finite", val_loss=math.nan, steps=3)
    run, waiting = sweep_status(folder).runs
    assert run.state == "done"
    assert run.val_loss is not None and math.isnan(run.val_loss)
    assert waiting.left is None


def test_the_time_left_goes_by_the_arms_own_runs_then_by_any(plan: Plan) -> None:
    folder = plan("slow-s0", "slow-s1", "fast-s0", "fast-s1", "new-s0")
    assert sweep_status(folder).seconds_left() is None
    end(folder / "slow-s0", wall=40.0)
    end(folder / "fast-s0", wall=20.0)
    left = {found.run.directory.name: found.left for found in sweep_status(folder).runs}
    assert left["slow-s0"] is None
    assert left["slow-s1"] == pytest.approx(40, abs=0.1)
    assert left["fast-s1"] == pytest.approx(20, abs=0.1)
    assert left["new-s0"] == pytest.approx(30, abs=0.1)
    assert sweep_status(folder).seconds_left() == pytest.approx(90, abs=0.1)
    # Two places take 40 beside 20 + 30 seconds, three the longest of the runs.
    assert sweep_status(folder).seconds_left(at_once=2) == pytest.approx(50, abs=0.1)
    assert sweep_status(folder).seconds_left(at_once=3) == pytest.approx(40, abs=0.1)


def test_a_run_that_nothing_else_measures_is_judged_by_its_own_speed(plan: Plan) -> None:
    folder = plan("a-s0", "a-s1")
    begin(folder / "a-s0", row(25, speed=50.0))
    with claimed(folder / "a-s0"):
        status = sweep_status(folder)
    # 100 steps of 10 tokens at 50 tokens/s are 20 s, of which a quarter has gone.
    assert status.runs[0].left == pytest.approx(15)
    assert status.runs[1].left == pytest.approx(20)
    assert status.seconds_left() == pytest.approx(35)
    assert status.seconds_left(at_once=8) == pytest.approx(20)


def test_time_counts_that_passed_since_the_newest_row_or_the_start(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plan("a-s0", "a-s1", "a-s2", "a-s3")
    end(folder / "a-s0", wall=100.0)
    with claimed(begin(folder / "a-s1", row(50))), claimed(begin(folder / "a-s2")):
        for path in ("a-s1/.lock", "a-s1/metrics.jsonl", "a-s2/.lock"):
            os.utime(folder / path, (1000, 1000))
        monkeypatch.setattr(progress.time, "time", lambda: 1020.0)
        left = [found.left for found in sweep_status(folder).runs]
        monkeypatch.setattr(progress.time, "time", lambda: 9000.0)
        late = [found.left for found in sweep_status(folder).runs]
    assert left == [None, pytest.approx(30), pytest.approx(80), pytest.approx(100)]
    assert late[1:3] == [0.0, 0.0]


def test_the_last_half_of_a_run_is_not_taken_for_the_whole(plan: Plan) -> None:
    folder = plan("a-s0", "a-s1")
    end(folder / "a-s0", wall=6.0)
    assert sweep_status(folder).seconds_left() == pytest.approx(10)


def test_the_line_after_each_run_of_a_sweep(plan: Plan) -> None:
    folder = plan(*(f"a-s{seed}" for seed in range(6)))
    assert progress_line(folder) == "0 of 6 done, 6 left"
    for seed in (0, 1):
        end(folder / f"a-s{seed}", wall=20.0)
    end(folder / "a-s2", "failed", error=RunError("OSError", "full"))
    assert progress_line(folder) == "2 of 6 done, 1 failed, 3 left; about 60 s left"
    begin(folder / "a-s3", row(50))
    with claimed(folder / "a-s3"):
        # One runs, and the place of the run that just ended is free: two side by side.
        assert progress_line(folder) == "2 of 6 done, 1 failed, 3 left; about 30 s left"
    for seed in range(2, 6):
        end(folder / f"a-s{seed}")
    assert progress_line(folder) == "6 of 6 done"


def test_a_directory_that_serves_two_purposes_is_one_run(plan: Plan) -> None:
    folder = plan("a-s0", "a-s0", "b-s0")
    end(folder / "a-s0")
    assert [found.run.directory.name for found in sweep_status(folder).runs] == ["a-s0", "b-s0"]


def test_a_trial_is_named_by_its_setting_and_tuning_says_that_more_will_follow(
    plan: Plan,
) -> None:
    tune = Tuning(grid=[0.001, 0.003, 0.01])
    study = Study("grid", baseline="a", arms={"a": []}, tune=tune)
    rows = [SweepRow("a", 0, "a-s0", role="tune", setting={"optimizer.lr": 0.003})]
    status = sweep_status(plan(study=study, runs=rows))
    assert status.tuning
    assert status.runs[0].label == "a lr=0.003 s0"
    tune = dataclasses.replace(tune, chosen={"a": Chosen(0.003)})
    study = dataclasses.replace(study, tune=tune)
    assert not sweep_status(plan(study=study, runs=rows)).tuning


def test_runs_without_a_plan_are_all_there_is(tmp_path: Path) -> None:
    end(tmp_path / "grid" / "a-s4")
    config = begin(tmp_path / "grid" / "b-s1", row(5)) / "config.yaml"
    config.write_text(config.read_text() + "arm: 'no: norm'\n")
    runs = sweep_status(tmp_path / "grid").runs
    assert [(found.label, found.state) for found in runs] == [
        ("a s4", "done"),
        ("no: norm s0", "interrupted"),
    ]


def test_a_damaged_result_is_that_runs_failure_and_hides_no_other(plan: Plan) -> None:
    folder = plan("a-s0", "b-s0")
    (end(folder / "a-s0") / "result.json").write_text("{")
    end(folder / "b-s0")
    assert states(folder) == {"a-s0": "failed", "b-s0": "done"}
    assert "result.json is damaged (it is not JSON); remove it" in str(
        one(folder, "a-s0").run.error
    )


def test_folders_that_are_no_sweep_are_refused_in_one_sentence(plan: Plan) -> None:
    folder = plan("a-s0")
    begin(folder / "a-s0")
    empty = folder.parent / "empty"
    empty.mkdir()
    for path, sentence in {
        folder.parent / "girt": f"did you mean {folder}?",
        folder.parent: f"holds sweeps, not runs; type one of them, such as {folder}.",
        folder / "a-s0": f"is a single run; type the folder of its sweep, {folder}.",
        empty: "holds no runs",
    }.items():
        with pytest.raises(InputError) as refused:
            sweep_status(path)
        assert sentence in str(refused.value)
        assert "\n" not in str(refused.value)
    for text in ("[]", '{"runs": [{"arm": "a"}]}', "{"):
        (folder / "sweep.json").write_text(text)
        with pytest.raises(InputError, match=r"sweep\.json is damaged"):
            sweep_status(folder)


def test_a_thousand_runs_are_counted(plan: Plan) -> None:
    names = [f"arm{i // 5}-s{i % 5}" for i in range(1000)]
    folder = plan(*names)
    for index, name in enumerate(names[:800]):
        begin(folder / name, *map(row, range(1, 100))) if index % 4 == 0 else end(folder / name)
    status = sweep_status(folder)
    assert dict(status.counts) == {
        "running": 0,
        "failed": 0,
        "interrupted": 200,
        "waiting": 200,
        "ended": 0,
        "done": 600,
    }


def test_looking_loads_nothing_heavy() -> None:
    code = (
        "import sys, lm_experiments.report.progress, lm_experiments.cli.status; "
        "print(sorted({'torch', 'lightning', 'hydra', 'numpy', 'wandb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_real_run_is_understood(train: Callable[..., Any]) -> None:
    assert train("name=one").code == 0
    status = sweep_status(Path("runs/one"))
    [run] = status.runs
    assert (run.state, run.step, run.max_steps, run.run.result.outcome) == ("done", 3, 3, "ok")
    assert run.whole and run.seconds and run.whole >= run.seconds
    (run.run.directory / "result.json").unlink()
    [run] = sweep_status(Path("runs/one")).runs
    assert (run.state, run.step) == ("interrupted", 3)
    assert run.whole and run.val_loss and run.tokens_per_second


def settle(folder: Path) -> None:
    """Let the last change of a folder and of all in it lie a minute back."""
    for path in [folder, *(path for path in folder.iterdir() if path.is_dir())]:
        os.utime(path, (time.time() - 60,) * 2)


def test_runs_that_have_not_changed_are_read_once(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plan("a-s0", "a-s1", "a-s2", "a-s3")
    for seed in range(3):
        begin(folder / f"a-s{seed}")
    write_result(folder / "a-s0", Result("done", "a", 0, steps=100))
    write_result(folder / "a-s1", Result("failed", "a", 1, steps=1))
    settle(folder)
    read = []
    monkeypatch.setattr(
        progress, "read_run", lambda folder, row: read.append(row.seed) or read_run(folder, row)
    )
    first = progress_line(folder)
    assert first.startswith("1 of 4 done, 1 failed, 2 left")
    assert read == [0, 1, 2, 3]
    assert progress_line(folder) == first
    # One that failed may be tried again, and one without a folder has nothing to remember.
    assert read[4:] == [1, 3]

    begin(folder / "a-s2", row(10))
    assert [run.state for run in sweep_status(folder).runs][2] == "interrupted"
    write_result(folder / "a-s2", Result("done", "a", 2, steps=100))
    assert progress_line(folder).startswith("2 of 4 done")
    write_sweep(folder, SweepRecord("grid", runs=[SweepRow("b", 0, "a-s0")]))
    assert [run.run.arm for run in sweep_status(folder).runs] == ["b"]


def test_what_changed_just_now_is_read_again(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = plan("a-s0")
    begin(folder / "a-s0")
    now = time.time()
    for _ in range(2):
        # As on a file system that has not noticed the second change.
        os.utime(folder / "a-s0", (now, now))
        state = sweep_status(folder).runs[0].state
        write_result(folder / "a-s0", Result("done", "a", 0, steps=100))
    assert state == "done"


def test_a_line_for_the_run_that_ended_looks_at_that_run(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plan("a-s0", "a-s1", "a-s2")
    end(folder / "a-s0", wall=5.0)
    monkeypatch.setattr(progress, "LOOKING_SHARE", 1e-12)
    first = progress_line(folder, 1, folder / "a-s0")
    assert first == progress_line(folder, 1) == "1 of 3 done, 2 left; about 20 s left"
    looks = []
    monkeypatch.setattr(progress, "sweep_status", lambda path: looks.append(path))
    end(folder / "a-s1", wall=5.0)
    assert progress_line(folder, 1, folder / "a-s1") == "2 of 3 done, 1 left; about 10 s left"
    end(folder / "a-s2", "failed")
    assert progress_line(folder, 1, folder / "a-s2") == "2 of 3 done, 1 failed"
    assert looks == []
    # A run that was planned since then is not known yet: all are looked at.
    monkeypatch.setattr(progress, "sweep_status", sweep_status)
    rows = [SweepRow("a", seed, f"a-s{seed}") for seed in range(4)]
    write_sweep(folder, SweepRecord("grid", runs=rows))
    end(folder / "a-s3")
    assert progress_line(folder, 1, folder / "a-s3") == "3 of 4 done, 1 failed"
