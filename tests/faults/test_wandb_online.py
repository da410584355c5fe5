"""A study online, against a server on this machine: what it gets, and the table made of that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.commands import SMALL, completed, script
from harness.wandb_runs import clean_client
from wandb_stub import API_KEY, Server, serving

from lm_experiments.launch.fork import start_server
from lm_experiments.training.wandb.axes import AXES, X_AXIS
from lm_experiments.training.wandb.offline import SUMMARY_HOME

FILES = ("table.md", "table.csv", "table.json", "table.tex")


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with clean_client(tmp_path, monkeypatch), serving() as server:
        start_server()
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", API_KEY)
        yield server


def own_id(folder: Path) -> str:
    return (folder / "wandb_id").read_text().split()[0]


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").open()]


def received(server: Server, run: Path) -> list[dict[str, Any]]:
    return [
        {"step": row[X_AXIS], **{k: v for k, v in row.items() if k[0] != "_" and k != X_AXIS}}
        for row in server.rows[own_id(run)]
    ]


@pytest.mark.slow
def test_the_table_of_what_the_service_has_is_the_table_of_the_folder(
    server: Server, train: Callable[..., Any], command: Callable[..., Any], tmp_path: Path
) -> None:
    answer = train(
        "-m", "placement=pre,post", "seed=0,1", "logger=wandb", "name=grid", "trainer.max_steps=6"
    )
    assert answer.code == 0, answer.err
    folder = tmp_path / "runs" / "grid"
    runs = [path.parent for path in folder.glob("*/result.json")]
    assert len(runs) == 4
    page = f"{server.url}/nobody/lm_experiments"
    printed = set(re.findall(r"^W&B: (http\S+)$", answer.out, re.MULTILINE))
    assert printed == {f"{page}/groups/grid", f"{page}/runs/{own_id(folder / SUMMARY_HOME)}"}, (
        answer.out
    )
    for run in runs:
        assert f"{page}/runs/{own_id(run)}" in (run / "train.log").read_text()
        for sent, local in zip(received(server, run), rows_of(run), strict=True):
            assert local.items() <= sent.items()
            assert set(AXES) <= set(sent)
    assert server.runs[own_id(folder / SUMMARY_HOME)]["jobType"] == "summary"
    assert set(FILES) <= set(server.files[own_id(folder / SUMMARY_HOME)])
    # Rows, summary and state of a run are few requests, however many rows there are.
    assert server.asked.count("UpsertBucket") <= 3 * 5

    again = command("table", "wandb:nobody/lm_experiments/grid", "--out", "fetched")
    assert again.code == 0, again.err
    for name in FILES:
        assert (tmp_path / "fetched/grid" / name).read_bytes() == (folder / name).read_bytes(), name
    shown = command("table", "wandb:nobody/lm_experiments/grid")
    assert shown.out.splitlines()[:8] == again.out.splitlines()[:8]
    assert "Nothing was written" in shown.out


@pytest.mark.slow
def test_a_study_online_is_whole_after_errors_delays_and_an_outage_in_the_middle(
    server: Server, text_file: Path, tmp_path: Path, cache_dir: Path
) -> None:
    words = ("-m", "placement=pre,post", "logger=wandb", "name=grid", "trainer.max_steps=400")
    command = [sys.executable, script("train"), *completed(words, SMALL), f"data.path={text_file}"]
    outage = ["500", "cut", "late", *["500", "cut"] * 3, "late"]
    server.troubles = [*["well"] * 6, *outage, *["well"] * 8, *outage]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.troubles == [], "the study was over before the trouble was"
    folder = tmp_path / "runs" / "grid"
    runs = [path.parent for path in folder.glob("*/result.json")]
    for run in runs:
        assert json.loads((run / "result.json").read_text())["wandb"] == "online"
        rows = received(server, run)
        assert [row["step"] for row in rows] == [row["step"] for row in rows_of(run)]
        assert all(a.items() <= b.items() for a, b in zip(rows_of(run), rows, strict=True))
        assert server.exit_codes[own_id(run)] == 0
    assert set(FILES) <= set(server.files[own_id(folder / SUMMARY_HOME)])
    page = f"{server.url}/nobody/lm_experiments"
    pages = {f"{page}/runs/{own_id(place)}" for place in (*runs, folder / SUMMARY_HOME)}
    printed = set(re.findall(r"^W&B: (http\S+)$", done.stdout, re.MULTILINE))
    assert printed == {*pages, f"{page}/groups/grid"}
    assert "wandb sync" not in done.stdout


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("wandb:grid", "wandb:grid names no sweep in W&B; type wandb:ENTITY/PROJECT/GROUP"),
        ("wandb:nobody/lm_experiments/gird", "has no runs that you can see"),
    ],
)
def test_a_sweep_that_is_not_there_is_one_sentence(
    source: str, says: str, refused: Callable[..., str]
) -> None:
    assert says in refused("table", source)


def test_without_a_key_there_is_one_sentence_and_no_question(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    assert "type wandb login first" in refused("table", "wandb:nobody/p/g")
