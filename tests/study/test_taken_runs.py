"""Runs that another sweep has finished: which are taken, what of them is copied, what is told."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from harness.commands import Answer
from harness.runs import CHOICES, lasting, result

from lm_experiments.errors import InputError
from lm_experiments.model import count
from lm_experiments.rundir.ledger import (
    LOOK,
    Look,
    Taken,
    append,
    read_ledger,
    record_command,
    taken_from,
)
from lm_experiments.rundir.names import CHECKPOINTS, CONFIG, DOCUMENTS, LOCK, LOG, METRICS, RESULT
from lm_experiments.rundir.results import DONE, FAILED, INTERRUPTED, Result, write_result
from lm_experiments.source import training_hash
from lm_experiments.study.choices import base_values
from lm_experiments.study.plan import PlannedRun, make_directory
from lm_experiments.study.record import record_sweep
from lm_experiments.study.store import done_elsewhere, take_runs
from lm_experiments.training.config import RunConfig, load_config, plain_values, run_config

HASH = "0123456789" * 6 + "abcd"
OLD = "2020-01-02T03:04:05+00:00"


def composed(**values: Any) -> RunConfig:
    return run_config(plain_values(run_config({**CHOICES, **values})))


Planned = Callable[..., PlannedRun]


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """A planned run of a sweep of this name; they are all the same run unless told otherwise."""

    def plan(name: str, arm: str = "base", config_hash: str = HASH, **values: Any) -> PlannedRun:
        config = composed(name=name, arm=arm, runs_dir=str(tmp_path), **values)
        directory = tmp_path / name / f"{arm}-s0-{config_hash[:8]}"
        return PlannedRun(config, directory, config_hash, "d", {}, count(config.model), None)

    return plan


def finished(run: PlannedRun, status: str = DONE, **changes: Any) -> PlannedRun:
    """Write the run's directory as training leaves it, without a model."""
    make_directory(run)
    for name in (METRICS, LOG, DOCUMENTS, f"{CHECKPOINTS}/step-00000010.ckpt"):
        (run.directory / name).parent.mkdir(exist_ok=True)
        (run.directory / name).write_text(f"{name} of {run.directory}")
    facts = {"config_hash": run.config_hash, "code_hash": training_hash(), "val_loss": 3.0}
    write_result(run.directory, Result(status, run.config.arm, 0, **{**facts, **changes}))
    os.utime(run.directory / RESULT, (1577934245, 1577934245))
    return run


def found(run: PlannedRun, *folders: Path) -> PlannedRun:
    """Look for the run in folders, by default in that of all sweeps."""
    [run] = done_elsewhere([run], [str(folder) for folder in folders or (run.config.runs_dir,)])
    return run


def tree(folder: Path) -> Mapping[Path, tuple[int, int]]:
    """What a folder holds: the size and the time of every file and folder in it.

    A lock's time is that of the last look at it.
    """
    paths = [path for path in (folder, *folder.rglob("*")) if path.name != LOCK]
    stats = {path: path.stat() for path in paths}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def test_a_study_grown_under_another_name_trains_what_is_new(train: Callable[..., Answer]) -> None:
    words = ("-m", "runs_from=[runs]", "name=old", "norm=rmsnorm,layernorm", "seed=0")
    assert train(*words).code == 0
    old = {path.name: lasting(path) for path in Path("runs/old").glob("*-s0-*")}
    before = tree(Path("runs/old"))
    words = ("-m", "runs_from=[runs]", "name=new", "norm=rmsnorm,layernorm", "ffn=swiglu,relu")
    said = "4 runs: 4 arms, seed 0; 0 done already, 2 taken from runs/old, 2 to train"
    assert said in train(*words, "plan=true").out
    assert not Path("runs/new").exists()
    answer = train(*words)
    assert answer.code == 0, answer.err
    assert said in answer.out
    assert "4 done, 0 failed" in answer.out
    assert "Of 4 runs, taken from other sweeps: 2 from runs/old." in answer.out
    assert tree(Path("runs/old")) == before
    taken = {name: Path("runs/new", name) for name in old if Path("runs/new", name).exists()}
    # They have the names of their new arms.
    assert not taken
    arms = {result(path)["arm"]: path for path in Path("runs/new").glob("*-s0-*")}
    for name, values in old.items():
        run = arms[f"{values['arm']} swiglu"]
        assert lasting(run) == {**values, "arm": f"{values['arm']} swiglu"}
        config = load_config(run)
        assert (config.name, config.arm) == ("new", f"{values['arm']} swiglu")
        assert (run / LOG).read_text() == Path("runs/old", name, LOG).read_text()

    shutil.rmtree("runs/old")
    table = Path("runs/new/table.md").read_text()
    again = train(*words)
    assert "4 done already, 0 to train" in again.out
    assert Path("runs/new/table.md").read_text() == table


def test_a_single_run_is_taken_too(train: Callable[..., Answer]) -> None:
    assert train("-m", "name=sweep", "seed=0,1").code == 0
    assert "1 taken from runs/sweep, 0 to train" in train("runs_from=[runs]", "plan=true").out
    assert "Taken from runs/sweep/seeds" not in train("seed=1").out
    answer = train("runs_from=[runs/sweep]", "seed=0")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("Taken from runs/sweep/baseline-s0-")
    assert [origin.folder for origin in taken_from(read_ledger(Path("runs/single")))] == [
        "runs/sweep"
    ]


def test_other_sweeps_of_the_same_folder_are_searched_by_default(
    train: Callable[..., Answer],
) -> None:
    [default] = base_values()["runs_from"]
    assert train("-m", "name=one", "seed=0").code == 0
    answer = train("-m", "name=two", "seed=0", f"runs_from=['{default}']", "plan=true")
    assert "1 taken from runs/one, 0 to train" in answer.out


def test_a_copy_is_whole_and_shares_no_file_that_grows(planned: Planned) -> None:
    source = finished(planned("old"))
    before = tree(source.directory.parent)
    run = found(planned("new", "other"))
    assert run.source == source.directory
    assert run.status == DONE
    assert not run.directory.exists()
    take_runs([run])
    assert tree(source.directory.parent) == before
    for name in (METRICS, LOG, DOCUMENTS, f"{CHECKPOINTS}/step-00000010.ckpt"):
        here, there = run.directory / name, source.directory / name
        assert here.read_bytes() == there.read_bytes()
        assert here.samefile(there) == (name not in (METRICS, LOG))
    own = {"arm": "other", "equal": "steps", "wandb": "none"}
    # By what rule widths were matched is what is asked here.
    own |= {"match": "params", "match_tolerance": 0.01}
    assert result(run.directory) == {**result(source.directory), **own}
    [entry] = taken_from(read_ledger(run.directory.parent))
    assert (entry.folder, entry.runs) == (
        str(source.directory.parent),
        {run.directory.name: "2020-01-02T03:04:05+00:00"},
    )
    # As old as it is where it comes from, for those that take it from here.
    assert (run.directory / RESULT).stat().st_mtime == 1577934245


def test_another_disk_gets_a_copy_of_everything(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = finished(planned("old"))

    def refuse(*names: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    run = found(planned("new"))
    take_runs([run])
    name = f"{CHECKPOINTS}/step-00000010.ckpt"
    assert (run.directory / name).read_bytes() == (source.directory / name).read_bytes()
    assert not (run.directory / name).samefile(source.directory / name)
    assert not list(run.directory.rglob("*.part"))


def test_of_checkpoints_in_shards_all_files_are_taken(planned: Planned) -> None:
    source = finished(planned("old"))
    name = f"{CHECKPOINTS}/step-00000008.shards/shard-00000-of-00001.ckpt"
    (source.directory / name).parent.mkdir()
    (source.directory / name).write_bytes(b"rows")
    run = found(planned("new"))
    take_runs([run])
    assert (run.directory / name).read_bytes() == b"rows"


def test_how_it_was_trained_stays_as_it_was(planned: Planned) -> None:
    trainer = {"max_steps": 10, "threads": 3, "log_every": 7}
    finished(planned("old", trainer=trainer, compile=False))
    run = found(planned("new", logger={"name": "wandb", "mode": "offline"}))
    take_runs([run])
    config = load_config(run.directory)
    assert (config.trainer.threads, config.trainer.log_every, config.compile) == (3, 7, False)
    assert (config.name, config.logger) == ("new", run.config.logger)


@pytest.mark.parametrize("outcome", ["diverged", "non-finite", "spiked"])
def test_however_a_run_turned_out_it_is_taken(planned: Planned, outcome: str) -> None:
    source = finished(planned("old"), outcome=outcome)
    assert found(planned("new")).source == source.directory


@pytest.mark.parametrize(
    "changes",
    [
        {"status": FAILED},
        {"status": INTERRUPTED},
        {"config_hash": HASH[:8] + "f" * 56},
        {"code_hash": "other"},
        {"code_hash": None},
    ],
)
def test_what_is_not_the_same_finished_run_is_not_taken(
    planned: Planned, changes: dict[str, Any]
) -> None:
    finished(planned("old"), **changes)
    assert found(planned("new")).source is None


def test_what_cannot_be_read_or_is_being_trained_is_not_taken(planned: Planned) -> None:
    source = finished(planned("old"))
    with FileLock(source.directory / LOCK):
        assert found(planned("new")).source is None
    assert found(planned("new")).source is not None
    (source.directory / RESULT).write_text('{"status": "do')
    assert found(planned("new")).source is None
    (source.directory / RESULT).unlink()
    assert found(planned("new")).source is None


def test_a_control_is_trained_anew(planned: Planned) -> None:
    finished(planned("old", control="again"))
    assert found(planned("new", control="again")).source is None


def test_what_has_begun_here_is_continued_here(planned: Planned) -> None:
    finished(planned("old"))
    here = planned("new")
    make_directory(here)
    assert found(here).source is not None
    with FileLock(here.directory / LOCK):
        assert found(here).source is None
    (here.directory / CHECKPOINTS).mkdir()
    (here.directory / CHECKPOINTS / "step-00000002.ckpt").touch()
    assert found(here).source is None


def test_the_own_folder_is_no_source_by_whatever_name(planned: Planned, tmp_path: Path) -> None:
    source = finished(planned("old"))
    (tmp_path / "link").symlink_to(tmp_path / "old")
    run = dataclasses.replace(source, directory=tmp_path / "link" / "base-s0-other")
    assert found(run).source is None
    # Another sweep may lie behind a link.
    shutil.move(tmp_path / "old", tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    behind = tmp_path / "runs" / "link" / source.directory.name
    assert found(planned("new"), tmp_path / "runs").source == behind


def test_runs_come_from_few_folders_and_only_from_those_that_are_named(
    planned: Planned, tmp_path: Path
) -> None:
    other = HASH[::-1]
    finished(planned("a"))
    finished(planned("b"))
    finished(planned("b", "second", other))
    runs = [planned("new"), planned("new", "second", other)]
    sources = {run.source and run.source.parent for run in done_elsewhere(runs, [str(tmp_path)])}
    assert sources == {tmp_path / "b"}
    sources = {run.source for run in done_elsewhere(runs, [str(tmp_path / "a")])}
    assert sources == {tmp_path / "a" / runs[0].directory.name, None}
    assert {run.source for run in done_elsewhere(runs, [])} == {None}
    with pytest.raises(InputError, match=r"names .*absent, which is no folder; type folders"):
        done_elsewhere(runs, [str(tmp_path / "absent")])


def test_two_commands_that_take_a_run_at_once_leave_one_whole_run(
    planned: Planned, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(planned("old"))
    run = found(planned("new"))
    make_directory(run)
    with FileLock(run.directory / LOCK):
        take_runs([run])
    assert "cannot be taken from" in capsys.readouterr().out
    assert not (run.directory / RESULT).exists()
    take_runs([run])
    once = tree(run.directory)
    take_runs([run])
    assert tree(run.directory) == once
    assert capsys.readouterr().out == ""


def test_a_source_that_went_away_or_is_damaged_is_told_and_the_run_is_left_to_be_trained(
    planned: Planned, capsys: pytest.CaptureFixture[str]
) -> None:
    source = finished(planned("old"))
    run = found(planned("new"))
    (source.directory / CONFIG).write_text("model: {")
    take_runs([run])
    told = capsys.readouterr().out
    assert told.startswith(f"{run.directory} cannot be taken from {source.directory}: ")
    assert told.count("\n") == 1
    assert not run.directory.exists()
    shutil.rmtree(source.directory)
    take_runs([run])
    assert "cannot be taken" in capsys.readouterr().out
    assert not run.directory.exists()
    # Nothing is told of what was not taken.
    assert read_ledger(run.directory.parent) == []


def test_the_ledger_keeps_what_was_declared_and_tested_where_runs_come_from(
    planned: Planned,
) -> None:
    hashes = {"base": HASH, "relu": HASH[::-1], "post": HASH[1:] + "0"}

    def runs(name: str, *arms: str) -> list[PlannedRun]:
        return [planned(name, arm, hashes[arm], arm_overrides=[f"ffn={arm}"]) for arm in arms]

    old = runs("old", "base", "relu", "post")
    folder = old[0].directory.parent
    record_command(folder, record_sweep(folder, old[:2], []))
    for run in old:
        finished(run)
    append(folder, LOOK, Look(2, 2, tested=True, baseline="base"))
    # Declared after results had been shown.
    record_command(folder, record_sweep(folder, old, []))

    def entries(name: str, source: str) -> Taken:
        new = runs(name, "base", "relu", "post")
        there = done_elsewhere(new, [str(folder.parent / source)])
        take_runs(there)
        [entry] = taken_from(read_ledger(new[0].directory.parent))
        return entry

    entry = entries("new", "old")
    arms = {name.split("-")[0]: name for name in entry.runs}
    assert entry.declared == [[arms["relu"], arms["base"]]]
    assert entry.tested is not None
    assert list(entry.tested.arms) == ["base", "relu"]
    # What was seen of a run stays seen, however often it is taken.
    record_sweep(folder.parent / "new", runs("new", "base", "relu", "post"), [])
    again = entries("newer", "new")
    assert (again.runs, again.tested) == (entry.runs, entry.tested)
