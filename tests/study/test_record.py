"""Which rows of a sweep's record another command may replace, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from lm_experiments.errors import InputError
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.rundir.ladder import Ladder, Rung
from lm_experiments.rundir.names import LOCK
from lm_experiments.rundir.published import Claim, Source
from lm_experiments.rundir.results import DONE, FAILED, INTERRUPTED, Result, write_result
from lm_experiments.rundir.study import Study
from lm_experiments.rundir.sweeps import read_sweep
from lm_experiments.study.expand import RunSpec
from lm_experiments.study.record import check_recordable, record_sweep


@dataclass
class Config:
    """The part of a configuration that a record keeps."""

    arm: str
    seed: int = 0
    arm_overrides: list[str] = field(default_factory=list)


@dataclass
class Planned:
    """A planned run without a model."""

    directory: Path
    config: Config
    values: dict[str, Any]
    spec: RunSpec = field(default_factory=RunSpec)
    changes: tuple[str, ...] = ()
    by_seed: tuple[str, ...] = ()
    seconds: float | None = None

    @property
    def config_hash(self) -> str:
        """Stands for the hash of the values."""
        return str(sorted(self.values.items()))


Plan = Callable[..., Planned]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    def make(arm: str, rate: float, **values: Any) -> Planned:
        config = Config(arm, arm_overrides=["norm=x"])
        return Planned(tmp_path / f"{arm}-{rate}", config, {"optimizer.lr": rate, **values})

    return make


def test_settings_that_no_arm_changes_are_refused_before_training(
    plan: Plan, tmp_path: Path
) -> None:
    first = plan("a", 0.1, **{"model.norm.name": "x"})
    record(first)
    begin(first, DONE)
    with pytest.raises(InputError, match=r"differ in optimizer\.lr \(0\.1 in a-0\.1, 0\.2 in b-0"):
        record(plan("b", 0.2, **{"model.norm.name": "x"}))
    assert rows(tmp_path) == [("a", "a-0.1")]
    other = plan("b", 0.2, **{"model.norm.name": "x"})
    other.changes = ("optimizer.lr",)
    record(other)
    assert rows(tmp_path) == [("a", "a-0.1"), ("b", "b-0.2")]


def record(*runs: Any) -> None:
    record_sweep(runs[0].directory.parent, list(runs), [])


def begin(run: Planned, status: str | None = None) -> None:
    run.directory.mkdir()
    write_identity(run.directory, Identity(run.config_hash, "", run.values))
    if status:
        (run.directory / LOCK).touch()
        write_result(run.directory, Result(status, run.config.arm, 0))


def rows(folder: Path) -> list[tuple[str, str]]:
    found = read_sweep(folder)
    assert found is not None
    return [(row.arm, row.directory) for row in found.runs]


@pytest.mark.parametrize("status", [DONE, INTERRUPTED])
def test_a_row_of_another_configuration_is_not_replaced(
    plan: Plan, tmp_path: Path, status: str
) -> None:
    first = plan("a", 0.1)
    record(first)
    begin(first, status)
    with pytest.raises(InputError) as caught:
        record(plan("a", 0.2))
    told = str(caught.value)
    assert f"holds arm 'a', seed 0, {status}, with other settings" in told
    assert "(optimizer.lr: 0.1 and 0.2, there and now)" in told
    assert "type name=..." in told
    assert rows(tmp_path) == [("a", "a-0.1")]


def test_a_row_is_not_replaced_while_its_sweep_trains(plan: Plan, tmp_path: Path) -> None:
    record(plan("a", 0.1), plan("b", 0.1))
    begin(plan("a", 0.1))
    with (
        FileLock(tmp_path / "a-0.1" / LOCK),
        pytest.raises(InputError, match=r"a-0\.1 is being trained"),
    ):
        record(plan("b", 0.2))


def test_a_row_that_was_never_begun_is_replaced_and_said(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(plan("a", 0.1), plan("b", 0.1))
    begin(plan("a", 0.1))
    begin(plan("b", 0.1), FAILED)
    capsys.readouterr()
    record(plan("a", 0.2), plan("b", 0.2))
    assert rows(tmp_path) == [("a", "a-0.2"), ("b", "b-0.2")]
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert "a-0.1 and 1 more" in told
    # A traceback is kept.
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["b-0.1"]


def test_a_label_that_grew_renames_its_row_in_place(plan: Plan, tmp_path: Path) -> None:
    runs = [plan("a", 0.1), plan("b", 0.3), plan("x/a", 0.1), plan("y/a", 0.2)]
    for run in runs:
        run.changes = ("optimizer.lr",)
    runs[2].directory = runs[0].directory
    record(*runs[:2])
    record(*runs[2:])
    assert [arm for arm, _ in rows(tmp_path)] == ["x/a", "b", "y/a"]


def test_published_claims_may_be_added_to_a_study_that_has_begun(
    plan: Plan, tmp_path: Path
) -> None:
    study = Study("s", "a", {"a": ["norm=x"], "b": ["norm=x"]})
    record_sweep(tmp_path, [plan("a", 0.1)], [], study)  # type: ignore[list-item]
    begin(plan("a", 0.1), DONE)
    claim = Claim("It is worse.", "worse", ["b", "a"], sources=[Source("A 2020", "table 1")])
    claimed = replace(study, published=[claim])
    record_sweep(tmp_path, [plan("a", 0.1)], [], claimed)  # type: ignore[list-item]
    kept = read_sweep(tmp_path)
    assert kept is not None and kept.study is not None and kept.study.published == [claim]
    with pytest.raises(InputError, match="before it was edited"):
        record_sweep(tmp_path, [plan("a", 0.1)], [], replace(study, margin=0.5))  # type: ignore[list-item]


def test_a_rung_may_be_added_to_a_ladder_and_none_taken_away(plan: Plan, tmp_path: Path) -> None:
    def climbed(*steps: int) -> Study:
        rungs = [Rung(f"{n}", {arm: f"{arm} at {n}" for arm in "ab"}) for n in steps]
        arms = {label: [f"s={rung.label}"] for rung in rungs for label in rung.arms.values()}
        ladder = Ladder(steps=list(steps), rungs=rungs, baseline="a", contrasts=[["b", "a"]])
        return Study("s", f"a at {steps[-1]}", arms, ladder=ladder)

    record_sweep(tmp_path, [plan("a at 1", 0.1)], [], climbed(1, 2, 3))  # type: ignore[list-item]
    begin(plan("a at 1", 0.1), DONE)
    higher = climbed(1, 2, 3, 4)
    record_sweep(tmp_path, [plan("a at 1", 0.1)], [], higher)  # type: ignore[list-item]
    kept = read_sweep(tmp_path)
    assert kept is not None and kept.study == higher
    with pytest.raises(InputError, match=r"arm 'a at 1': .* there, no such arm now"):
        check_recordable(tmp_path, [], climbed(2, 3, 4))
    assert higher.ladder is not None
    other = replace(higher, ladder=replace(higher.ladder, baseline="b"))
    with pytest.raises(InputError, match="baseline: 'a' there, 'b' now"):
        check_recordable(tmp_path, [], other)
