"""Joining the plan with the directories found, and refusing what cannot be read."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import SweepFactory, failed, history, result_of

from lm_experiments.errors import InputError
from lm_experiments.report import collect
from lm_experiments.rundir.metrics import read_rows


def test_every_planned_run_is_there_with_its_status(sweep: SweepFactory) -> None:
    sweep.run("z", result=result_of("z", 0, 3.1))
    sweep.run("b", result=failed("b", 0, "RuntimeError", "boom\nand more"))
    sweep.run("c", metrics=history(3.0, 0)[:3])
    sweep.run("d")
    sweep.run("e", exists=False)
    sweep.run("f", result=result_of("f", 0, 3.0, status="interrupted", outcome=None))
    found = collect(sweep.plan("ffn"))
    assert found.record.name == "grid"
    assert found.record.axes == ["ffn"]
    assert found.arms == ("z", "b", "c", "d", "e", "f")
    assert [run.status for run in found.runs] == [
        "done",
        "failed",
        "interrupted",
        "waiting",
        "waiting",
        "interrupted",
    ]
    assert found.runs[1].error == "RuntimeError: boom and more"


def test_a_sweep_is_called_as_its_folder_is_now(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.0})
    folder = sweep.plan().rename(sweep.root.with_name("other"))
    assert collect(folder).record.name == "other"
    link = folder.with_name("link")
    link.symlink_to(folder)
    assert collect(link).record.name == "other"


def test_result_fields_are_read(sweep: SweepFactory) -> None:
    sweep.run("a", 3, result=result_of("a", 3, 3.1, dirty=True))
    (run,) = collect(sweep.plan()).runs
    assert (run.seed, run.result.val_loss, run.result.val_tokens) == (3, 3.1, 40960)
    assert (run.parameters, run.non_embedding) == (4213760, 3165184)
    assert run.commit == "a" * 40 + "+dirty"
    assert run.usable


def test_without_a_plan_the_directories_found_are_the_sweep(sweep: SweepFactory) -> None:
    sweep.run("b", 1, result=result_of("b", 1, 3.1))
    sweep.run("b", 0)
    sweep.run("a", 10, metrics=history(3.0, 0)[:1])
    sweep.run("a", 9, result=result_of("a", 9, 3.2))
    (sweep.root / "notes").mkdir()
    found = collect(sweep.root)
    assert found.record.name == "grid"
    assert [(run.arm, run.seed, run.status) for run in found.runs] == [
        ("a", 9, "done"),
        ("a", 10, "interrupted"),
        ("b", 0, "waiting"),
        ("b", 1, "done"),
    ]


def test_directories_outside_the_plan_are_reported_apart(sweep: SweepFactory) -> None:
    stray = sweep.run("old", result=result_of("old", 0, 3.0))
    sweep.planned.clear()
    sweep.run("a", result=result_of("a", 0, 3.0))
    found = collect(sweep.plan())
    assert found.arms == ("a",)
    assert found.extra == (stray,)


@pytest.mark.parametrize(
    ("changes", "outcome", "usable"),
    [
        ({}, "ok", True),
        ({"outcome": None}, "ok", True),
        ({"outcome": "spiked"}, "spiked", True),
        ({"outcome": "diverged"}, "diverged", False),
        ({"outcome": "non-finite", "val_loss": math.nan}, "non-finite", False),
        ({"val_loss": math.inf}, "non-finite", False),
        ({"val_loss": None}, "non-finite", False),
        ({"status": "interrupted"}, "interrupted", False),
        ({"status": "failed"}, "FAILED", False),
    ],
)
def test_the_word_for_an_outcome(
    sweep: SweepFactory, changes: dict[str, Any], outcome: str, usable: bool
) -> None:
    sweep.run("a", result=dataclasses.replace(result_of("a", 0, 3.0), **changes))
    (run,) = collect(sweep.plan()).runs
    assert (run.outcome, run.usable) == (outcome, usable)


def test_a_missing_folder_suggests_its_neighbour(sweep: SweepFactory) -> None:
    with pytest.raises(InputError, match=r"no folder .*gird.*did you mean .*grid"):
        collect(sweep.root.parent / "gird")


def test_a_folder_without_runs_says_what_a_run_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no runs.*config\.yaml.*runs/NAME"):
        collect(tmp_path)


def test_a_run_or_the_folder_of_all_sweeps_is_pointed_to_the_sweep(sweep: SweepFactory) -> None:
    run = sweep.run("a", result=result_of("a", 0, 3.0))
    with pytest.raises(InputError, match=r"single run; type .*grid"):
        collect(run)
    with pytest.raises(InputError, match=r"holds sweeps.*grid"):
        collect(sweep.root.parent)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"status": "do', "it is not JSON"),
        ("[]", "holds no object"),
        ('{"status": "great"}', "status is 'great'"),
        ('{"status": "done", "arm": "a", "seed": 0, "val_loss": "low"}', "val_loss='low'"),
        ('{"status": "done"}', "arm is not set"),
    ],
)
def test_a_damaged_result_is_named(sweep: SweepFactory, text: str, reason: str) -> None:
    directory = sweep.run("a")
    (directory / "result.json").write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        collect(sweep.plan())
    assert str(directory / "result.json") in str(caught.value)


@pytest.mark.parametrize("plan", ["{", '{"runs": 3}', '{"runs": [{"arm": "a"}]}'])
def test_a_damaged_plan_is_named(sweep: SweepFactory, plan: str) -> None:
    (sweep.root / "sweep.json").write_text(plan)
    with pytest.raises(InputError, match=r"sweep\.json"):
        collect(sweep.root)


def test_metrics_survive_cut_rows_and_special_numbers(tmp_path: Path) -> None:
    rows = [
        '{"step": 1, "train/loss": "nan"}',
        '{"step": 2, "tra',
        '{"step": 3, "val/loss": "-inf"}',
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join([*rows, '{"step": 4, "val/lo']))
    first, second = read_rows(path)
    assert first["step"] == 1
    assert math.isnan(first["train/loss"])
    assert second == {"step": 3, "val/loss": -math.inf}
    assert read_rows(path, "val/loss") == [second]


def test_no_metrics_are_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "metrics.jsonl") == []


def test_a_config_without_an_arm_is_named(sweep: SweepFactory) -> None:
    directory = sweep.run("a")
    (directory / "config.yaml").write_text(json.dumps({"seed": 0}))
    with pytest.raises(InputError, match="names no arm and seed"):
        collect(sweep.root)
