"""The run that sums a sweep up in W&B, by the real client, offline."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.wandb_runs import clean_client, records
from synthetic_runs import SweepFactory

from lm_experiments.report import write_report
from lm_experiments.study.wandb_summary import summarize
from lm_experiments.training.logger_config import WandbConfig
from lm_experiments.training.wandb.offline import ID_FILE, SUMMARY_HOME, offline_summary


@pytest.fixture(autouse=True)
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with clean_client(tmp_path, monkeypatch):
        yield


def kept(found: list[dict[str, Any]]) -> set[str]:
    return {item["path"] for r in found if r["type"] == "files" for item in r["files"]["files"]}


def test_a_sweep_has_one_run_with_its_table_verdicts_pictures_and_ledger(
    sweep: SweepFactory, capfd: pytest.CaptureFixture[str]
) -> None:
    sweep.done("base", {0: 3.10, 1: 3.12, 2: 3.11})
    sweep.done("new", {0: 3.00, 1: 3.03, 2: 3.01})
    folder = sweep.plan()
    (folder / "report.html").write_text("<p>")
    summarize(folder, write_report(folder), WandbConfig(mode="offline", tags=["mine"]))
    assert capfd.readouterr() == ("", "")
    known = (folder / SUMMARY_HOME / ID_FILE).read_text().split()[0]
    found = records(folder / SUMMARY_HOME)
    run = next(record["run"] for record in found if record["type"] == "run")
    assert (run["run_id"], run["run_group"], run["job_type"]) == (known, "grid", "summary")
    assert run["tags"] == ["mine", "study:grid", "summary"]
    written = {"table.md", "table.csv", "table.json", "table.tex", "sweep.json", "ledger.jsonl"}
    assert written | {"report.html", "forest.png"} <= kept(found)
    told = [record["summary"]["update"] for record in found if record["type"] == "summary"]
    assert {"baseline": "base"}.items() <= {k: v for x in told for k, v in x.items()}.items()
    verdicts = next(values["verdicts"] for values in told if "verdicts" in values)
    assert verdicts == {"new": "better"}
    [tables] = [r["history"]["item"] for r in found if r["type"] == "history"]
    assert {"table.path", "runs.path", "forest.path"} <= set(tables)
    [path] = folder.glob(f"{SUMMARY_HOME}/wandb/offline-run-*/files/{tables['table.path']}")
    shown = json.loads(path.read_text())
    arm, loss = (shown["columns"].index(name) for name in ("arm", "val_loss_mean"))
    assert [(row[arm], round(row[loss], 3)) for row in shown["data"]] == [
        ("new", 3.013),
        ("base", 3.11),
    ]
    assert (
        f"wandb sync {folder}/{SUMMARY_HOME}/wandb/offline-run-*" in offline_summary([], folder)[1]
    )


@pytest.mark.slow
def test_a_sweep_that_grew_has_the_same_run_with_the_new_table(sweep: SweepFactory) -> None:
    sweep.done("base", {0: 3.10, 1: 3.12})
    folder = sweep.plan()
    config = WandbConfig(mode="offline")
    summarize(folder, write_report(folder), config)
    sweep.done("new", {0: 3.00, 1: 3.03})
    folder = sweep.plan()
    summarize(folder, write_report(folder), config)
    found = records(folder / SUMMARY_HOME)
    assert len({r["run"]["run_id"] for r in found if r["type"] == "run"}) == 1
    rows = [r["history"]["item"]["runs.nrows"] for r in found if r["type"] == "history"]
    assert rows == [2, 4]


def test_a_failure_is_one_line_and_nothing_is_raised(
    sweep: SweepFactory, capfd: pytest.CaptureFixture[str]
) -> None:
    sweep.done("base", {0: 3.10})
    folder = sweep.plan()
    report = write_report(folder)
    gone = dataclasses.replace(report, files=(folder / "curves.png", *report.files))
    summarize(folder, gone, WandbConfig(mode="offline"))
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("W&B: the sweep's summary was not sent (FileNotFoundError: ")
    assert err.count("\n") == 1
    summarize(folder, report, WandbConfig(mode="disabled"))
    assert capfd.readouterr() == ("", "")
