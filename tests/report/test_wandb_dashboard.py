"""What scripts/dashboard.py would create in W&B, said without a network."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from synthetic_runs import SweepFactory

from lm_experiments.rundir.metrics import write_rows
from lm_experiments.study.wandb_dashboard import build

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def logged(sweep: SweepFactory) -> Path:
    rows = [{"step": 5, "train/loss": 3.2}, {"step": 5, "val/loss": 3.1, "block/rms": 1.0}]
    sweep.done("base", {0: 3.1})
    sweep.done("new's", {0: 3.0})
    folder = sweep.plan()
    for path in folder.glob("*/config.yaml"):
        write_rows(path.with_name("metrics.jsonl"), rows)
        logger = {"name": "wandb", "project": "mine", "entity": "us", "group": "it's"}
        path.write_text(path.read_text() + yaml.safe_dump({"logger": logger}))
    return folder


def test_print_says_what_would_be_created(logged: Path, command: Callable[..., Any]) -> None:
    answer = command("dashboard", logged, "--print")
    assert answer.code == 0, answer.err
    said = yaml.safe_load(answer.out)
    assert said["in"] == "us/mine"
    assert said["view"]["runs"] == {"group": "it's", "grouped by": "config.arm"}
    sections = said["view"]["sections"]
    assert list(sections) == ["summary", "loss at equal cost", "val", "train", "block"]
    axes = [panel["x"] for panel in sections["loss at equal cost"]]
    assert axes == ["trainer/global_step", "tokens", "flops", "seconds"]
    [panel] = sections["block"]
    assert (panel["panel"], panel["y"], panel["groupby"]) == ("LinePlot", ["block/rms"], "arm")
    assert (panel["groupby_aggfunc"], panel["groupby_rangefunc"]) == ("mean", "stderr")
    assert {"panel": "WeavePanelSummaryTable", "table_name": "table"} in sections["summary"]
    parts = said["report"]["parts"]
    assert [part["runs"] for part in parts] == [["summary"], *[["runs"]] * 4]


def test_the_service_is_told_of_the_group_alone_and_of_bands_by_arm(logged: Path) -> None:
    dashboard = build(logged)
    view = dashboard.view._to_model().model_dump_json(by_alias=True)
    assert '"value":"it\'s"' in view
    assert '"aggregate":true' in view
    assert '"groupArea":"stderr"' in view
    grids = [block for block in dashboard.report.blocks if hasattr(block, "panels")]
    # The rest of a report asks the service for the project.
    filters = [runset.filters for grid in grids for runset in grid.runsets]
    assert all(text.startswith(r"Metric('Group') == 'it\'s' and ") for text in filters)
    assert [text.endswith("== 'summary'") for text in filters] == [True, *[False] * 4]


def test_what_is_missing_is_one_sentence(
    sweep: SweepFactory, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep.done("base", {0: 3.1})
    said = refused("dashboard", sweep.plan(), "--print")
    assert "was logged to W&B; train with logger=wandb" in said
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'lm_experiments[dashboard]'" in refused("dashboard", "x", "--print")
