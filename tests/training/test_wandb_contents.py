"""What a dashboard finds in a run by the real client: axes, a summary, tags, an alert, the code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.wandb_runs import build, clean_client, history, log, logged, records

from lm_experiments.errors import InputError
from lm_experiments.rundir.results import (
    DIVERGED,
    DONE,
    NON_FINITE,
    Result,
    read_result,
    result_of_values,
)
from lm_experiments.training.logger_config import WandbConfig
from lm_experiments.training.loggers import build_loggers
from lm_experiments.training.peaks import peak_flops, utilization
from lm_experiments.training.wandb.axes import AXES, X_AXIS, Spent
from lm_experiments.training.wandb.description import described, tag
from lm_experiments.training.wandb.offline import logs_of, offline_summary


@pytest.fixture(autouse=True)
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with clean_client(tmp_path, monkeypatch):
        yield


def last(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    values: dict[str, Any] = [record[kind] for record in found if record["type"] == kind][-1]
    return values


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for record in found:
        values |= record["summary"]["update"] if record["type"] == "summary" else {}
    return values


def test_a_trained_run_has_axes_a_summary_tags_and_the_files_of_a_table(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    answer = train("logger=wandb", "logger.mode=offline", "logger.tags=[mine]", "name=one")
    assert answer.code == 0, answer.err
    [run] = [path.parent for path in Path("runs/one").glob("*/result.json")]
    found = records(run)
    result = read_result(run)
    assert result is not None
    assert result_of_values(summary(found)["result"]) == result
    assert last(found, "run")["git"]["commit"] == result.commit
    tags = ["mine", "study:one", tag("arm", result.arm), "seed:0", "outcome:ok"]
    assert last(found, "run")["tags"] == tags
    rows = [record["history"]["item"] for record in found if record["type"] == "history"]
    assert [row[X_AXIS] for row in rows] == [1, 2, 3, 3]
    tokens, flops, seconds = ([row[axis] for row in rows] for axis in AXES)
    assert tokens == [row[X_AXIS] * 256 for row in rows]
    assert result.flops_per_token is not None
    assert flops == [count * result.flops_per_token for count in tokens]
    assert result.seconds is not None
    assert 0 < seconds[0] < seconds[1] < seconds[2] == seconds[3] <= result.seconds
    kept = {item["path"] for r in found if r["type"] == "files" for item in r["files"]["files"]}
    assert {"identity.json", "documents.npz"} <= kept
    assert ("code.patch" in kept) == result.dirty


@pytest.mark.parametrize(
    ("outcome", "step"), [(DIVERGED, 3), pytest.param(NON_FINITE, None, marks=pytest.mark.slow)]
)
def test_a_run_that_blew_up_says_so_in_its_state_a_tag_and_an_alert(
    outcome: str, step: int | None, tmp_path: Path
) -> None:
    loggers = build(tmp_path)
    log(loggers, range(2))
    loggers.finish(0, Result(DONE, "pre relu", 3, outcome=outcome, outcome_step=step))
    found = records(tmp_path)
    assert last(found, "exit")["exit_code"] == 3
    assert last(found, "run")["tags"][-1] == f"outcome:{outcome}"
    alert = last(found, "alert")
    assert alert["title"] == f"pre relu s3: {outcome}"
    assert alert["text"].endswith(f"is {outcome}{' at step 3' if step else ''}.")


@pytest.mark.slow
def test_a_crash_ends_as_a_crash_without_an_outcome(tmp_path: Path) -> None:
    loggers = build(tmp_path)
    loggers.finish(1, Result("failed", "pre relu", 3))
    found = records(tmp_path)
    assert last(found, "exit")["exit_code"] == 1
    assert not any("outcome" in text for text in last(found, "run")["tags"])
    assert "alert" not in {record["type"] for record in found}


@pytest.mark.slow
def test_a_resumed_run_counts_its_seconds_on(tmp_path: Path) -> None:
    def row(loggers: Any, step: int) -> None:
        for logger in loggers.loggers:
            logger.log_metrics({"train/tokens_per_second": 50.0}, step)

    first = build(tmp_path)
    row(first, 1)
    row(first, 2)
    first.finish(1)
    second = build(tmp_path, resume=2)
    row(second, 3)
    second.finish(0)
    # 100 tokens a step at 50 tokens per second.
    assert [sent["seconds"] for sent in history(tmp_path)] == [2.0, 4.0, 6.0]


def test_what_was_spent_follows_from_the_rows() -> None:
    spent = Spent(tokens_per_step=10, flops_per_token=3)
    rows = [(1, 5.0), (4, 10.0), (4, None), (5, float("inf"))]
    found = [spent.by(n, {"train/tokens_per_second": v} if v else {}) for n, v in rows]
    assert [list(values.values()) for values in found] == [
        [10, 30, 2.0],
        [40, 120, 5.0],
        [40, 120, 5.0],
        [50, 150, 5.0],
    ]


def test_tags_and_name_tell_the_place_in_the_sweep(tmp_path: Path) -> None:
    run = logged(tmp_path, roles=("tune", "report"), baseline="pre relu", alone=False)
    words = described(WandbConfig(run_name="draft"), run)
    assert words["tags"][3:] == ["role:tune", "role:report", "baseline"]
    assert words["name"] == "draft pre relu s3"
    assert described(WandbConfig(run_name="draft"), logged(tmp_path))["name"] == "draft"
    long = [tag("arm", "x" * 70 + end) for end in "ab"]
    assert [len(text) for text in long] == [64, 64]
    assert long[0] != long[1]


@pytest.mark.slow
def test_variables_of_the_client_hold_where_nothing_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "WANDB_PROJECT": "theirs",
        "WANDB_ENTITY": "team",
        "WANDB_TAGS": "a,b",
        "WANDB_NOTES": "a remark",
        "WANDB_RUN_GROUP": "bunch",
        "WANDB_JOB_TYPE": "probe",
        "WANDB_NAME": "called",
        "WANDB_DIR": str(tmp_path / "elsewhere"),
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "one").mkdir()
    loggers = build_loggers(WandbConfig(project="mine"), logged(tmp_path / "one"))
    log(loggers, range(3))
    loggers.finish(0)
    [path] = logs_of(tmp_path / "one", online=False)
    assert path.is_relative_to(tmp_path / "elsewhere" / "wandb")
    run = last(records(tmp_path / "elsewhere"), "run")
    assert run["project"] == "mine"
    names = ("entity", "notes", "run_group", "job_type", "display_name")
    assert [run[name] for name in names] == ["team", "a remark", "bunch", "probe", "called"]
    assert run["tags"][:2] == ["a", "b"]
    assert str(path.parent) in offline_summary([tmp_path / "one"])[1]
    # What is continued without the variable goes on where its log lies.
    monkeypatch.delenv("WANDB_DIR")
    again = build(tmp_path / "one", resume=2)
    log(again, range(2, 4))
    again.finish(0)
    assert not (tmp_path / "one" / "wandb").exists()
    assert sorted(row[X_AXIS] for row in history(tmp_path / "elsewhere")) == [0, 1, 2, 3]


def test_a_variable_that_is_typed_over_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_TAGS", "a,b")
    assert WandbConfig().tags == ["a", "b"]
    assert WandbConfig(tags=[]).tags == []
    with pytest.raises(InputError, match=r"logger\.project='a/b' contains /"):
        WandbConfig(project="a/b")


@pytest.mark.parametrize(
    ("device", "precision", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16-mixed", 989.4e12),
        ("NVIDIA H100 PCIe", "bf16-true", 756.5e12),
        ("NVIDIA A100-SXM4-80GB", "32-true", 156e12),
        ("NVIDIA L40S", "bf16-mixed", 362e12),
        ("NVIDIA A10G", "bf16-mixed", None),
        ("Something Else", "32-true", None),
    ],
)
def test_peaks_are_those_of_the_device_by_its_whole_name(
    device: str, precision: str, peak: float | None
) -> None:
    assert peak_flops(device, precision) == peak


def test_utilization_is_of_all_devices_and_unknown_without_a_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA A100-SXM4-80GB")
    known = {"device": "cuda", "tokens_per_second": 1e6, "flops_per_token": 312_000_000}
    result = Result(DONE, "a", 0, world_size=2, precision="bf16-mixed", **known)
    assert utilization(result) == pytest.approx(0.5)
    assert utilization(Result(DONE, "a", 0, **{**known, "device": "cpu"})) is None
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "Something Else")
    assert utilization(result) is None


@pytest.mark.slow
def test_how_the_code_differs_from_its_commit_is_a_file_of_the_run(tmp_path: Path) -> None:
    loggers = build_loggers(WandbConfig(), logged(tmp_path, commit="a" * 40, patch="+ näher"))
    loggers.finish(0)
    [path] = tmp_path.glob("wandb/offline-run-*/files/code.patch")
    assert path.read_text() == "+ näher\n"
    found = records(tmp_path)
    assert last(found, "run")["git"]["commit"] == "a" * 40
    kept = [item["path"] for r in found if r["type"] == "files" for item in r["files"]["files"]]
    assert kept == ["code.patch"]
    assert json.dumps(found).count("näher") == 0
