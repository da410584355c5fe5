"""The loggers of a run: the local rows, and W&B with the real client, offline or unreachable."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import lightning as L
import pytest
import torch
import wandb
from harness.wandb_runs import CONFIG, build, clean_client, history, log, logged, ours, records
from lightning.pytorch.utilities import rank_zero_only

from lm_experiments.training.logger_config import NoLogger
from lm_experiments.training.loggers import (
    JsonlLogger,
    build_loggers,
    read_rows,
)
from lm_experiments.training.wandb.axes import AXES, X_AXIS
from lm_experiments.training.wandb.offline import offline_summary
from lm_experiments.training.wandb.transaction_log import logged_keys


@pytest.fixture(autouse=True)
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with clean_client(tmp_path, monkeypatch):
        yield


def kill_core() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in children:
        if "wandb-core" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(int(child), signal.SIGKILL)
            time.sleep(0.2)
            return
    pytest.fail("no wandb-core child to kill")


def test_jsonl_writes_each_row_at_once_with_legal_json(tmp_path: Path) -> None:
    logger = JsonlLogger(tmp_path)
    logger.log_metrics({"a": float("nan"), "b": float("-inf"), "c": 1}, 0)
    logger.log_metrics({"a": torch.tensor(0.5)}, 1)  # type: ignore[dict-item]
    text = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == [
        {"step": 0, "a": "nan", "b": "-inf", "c": 1},
        {"step": 1, "a": 0.5},
    ]


@pytest.mark.parametrize(("resume", "kept"), [(None, [0, 1, 2]), (1, [0, 1]), (-1, [])])
def test_jsonl_resume_logs_each_step_once(
    tmp_path: Path, resume: int | None, kept: list[int]
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f'{{"step": {step}, "a": 1}}\n' for step in range(3)) + '{"step": 3, "')
    logger = JsonlLogger(tmp_path, resume_step=resume)
    logger.log_metrics({"a": 2}, 9)
    assert [row["step"] for row in read_rows(path)] == [*kept, 9]
    assert list(tmp_path.iterdir()) == [path]


def test_a_validation_that_is_made_again_is_logged_once_as_it_came_out_last(
    tmp_path: Path,
) -> None:
    logger = JsonlLogger(tmp_path)
    for row, step in (({"a": 1.0}, 1), ({"a": 2.0}, 2), ({"val/loss": 3.0}, 2)):
        logger.log_metrics(row, step)
    again = JsonlLogger(tmp_path, resume_step=2)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    again.log_metrics({"val/loss": 3.0}, 2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    third = JsonlLogger(tmp_path, resume_step=2)
    third.log_metrics({"val/loss": 3.25}, 2)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert rows == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}, {"step": 2, "val/loss": 3.25}]


def test_three_runs_in_one_process_are_three_wandb_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):
        loggers = build(tmp_path / str(seed), seed, tags=["t"])
        assert loggers.wandb_mode == "offline"
        log(loggers, range(4))
        if seed == 1:
            loggers.finish(1)
            loggers.finish(0)
        loggers.finish(0)
    assert capfd.readouterr() == ("", "")
    ids = set()
    for seed in range(3):
        found = records(tmp_path / str(seed))
        run = next(record["run"] for record in found if record["type"] == "run")
        config = {k: v for k, v in run["config"]["update"].items() if k != "_wandb"}
        assert config == {**CONFIG, "seed": seed}
        assert (run["run_group"], run["display_name"]) == ("sweep", f"pre relu s{seed}")
        tags = ["t", "study:sweep", "arm:pre relu", f"seed:{seed}"]
        assert (run["job_type"], run["tags"]) == ("train", tags)
        steps = [r["history"]["item"][X_AXIS] for r in found if r["type"] == "history"]
        assert steps == [0, 1, 2, 3]
        defined = [r["metric"] for r in found if r["type"] == "metric"]
        assert [metric.get("name") for metric in defined] == [X_AXIS, *AXES, None]
        assert [metric.get("step_metric") for metric in defined] == [*[None] * 4, X_AXIS]
        # What the client measures of the machine may be written after it.
        codes = [record["exit"]["exit_code"] for record in found if record["type"] == "exit"]
        assert codes == [1 if seed == 1 else 0]
        assert run["run_id"] == (tmp_path / str(seed) / "wandb_id").read_text().split()[0]
        ids.add(run["run_id"])
    assert len(ids) == 3


class Toy(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        loss = self.layer(batch).pow(2).mean()
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        self.log("val/loss", self.layer(batch).pow(2).mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore")
def test_trainer_sends_every_validation_on_one_axis(tmp_path: Path) -> None:
    loggers = build(tmp_path)
    data = torch.utils.data.DataLoader(torch.ones(16, 1))
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=4,
        accumulate_grad_batches=2,
        val_check_interval=4,
        log_every_n_steps=1,
        logger=loggers.loggers,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Toy(), data, data)
    loggers.finish(0)
    sent = history(tmp_path)
    local = read_rows(tmp_path / "metrics.jsonl")
    for rows, axis in ((sent, X_AXIS), (local, "step")):
        assert len([row for row in rows if "val/loss" in row]) == 2
        assert all(axis in row for row in rows)
    assert [row[X_AXIS] for row in sent] == [row["step"] for row in local]
    assert trainer.log_dir == str(tmp_path)


def test_killed_run_resumes_with_its_id_and_no_lost_or_doubled_steps(tmp_path: Path) -> None:
    first = build(tmp_path)
    log(first, range(4))
    first.finish(1)
    second = build(tmp_path, resume=1)
    log(second, range(2, 8))
    kill_core()
    second.finish(1)
    kept = (tmp_path / "wandb_id").read_text()

    third = build(tmp_path, resume=5)
    log(third, range(6, 10))
    third.finish(0)
    assert (tmp_path / "wandb_id").read_text() == kept
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == list(range(10))
    assert {p.name for p in tmp_path.glob("wandb/*/*.wandb")} == {f"run-{kept.split()[0]}.wandb"}
    assert sorted(row[X_AXIS] for row in history(tmp_path)) == list(range(10))


def test_rows_from_before_a_run_had_wandb_are_sent_too(tmp_path: Path) -> None:
    logger = JsonlLogger(tmp_path)
    for step in range(4):
        logger.log_metrics({"train/loss": 1.0}, step)
    logger.finalize("success")
    loggers = build(tmp_path, resume=2)
    log(loggers, range(3, 6))
    loggers.finish(0)
    assert [row[X_AXIS] for row in history(tmp_path)] == list(range(6))


def test_a_copied_run_is_another_wandb_run_and_a_moved_one_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = build(tmp_path / "one")
    log(first, range(4))
    first.finish(1)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    (tmp_path / "one").rename(tmp_path / "moved")

    def go_on(name: str) -> str:
        loggers = build(tmp_path / name, resume=1)
        log(loggers, range(2, 6))
        loggers.finish(0)
        return (tmp_path / name / "wandb_id").read_text().split()[0]

    # The first of the two is where the run was moved to, for all that can be known.
    kept = go_on("moved")
    assert ours(caplog) == []
    assert go_on("moved") == kept
    shutil.copytree(tmp_path / "moved", tmp_path / "again")
    other = go_on("again")
    assert other != kept
    assert ["is a copy of" in text for text in ours(caplog)] == [True]
    assert go_on("again") == other
    logs = {path.parent.name: path for path in tmp_path.glob("again/wandb/*/*.wandb")}
    sent = [step for name, path in logs.items() if other in name for step in logged_keys(path)]
    assert sorted(sent) == list(range(6)), "its W&B run has all rows, the other's are not added"
    marked = {path.parent.name for path in tmp_path.glob("again/wandb/*/*.wandb.synced")}
    assert marked == {name for name in logs if kept in name}, "the original uploads those"


def test_dead_client_warns_once_and_the_next_run_is_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loggers = build(tmp_path / "a")
    log(loggers, range(2))
    kill_core()
    log(loggers, range(2, 50))
    loggers.finish(0)
    assert ["W&B stopped working" in text for text in ours(caplog)] == [True]
    assert len(read_rows(tmp_path / "a" / "metrics.jsonl")) == 50

    following = build(tmp_path / "b")
    log(following, range(2))
    following.finish(0)
    assert [row[X_AXIS] for row in history(tmp_path / "b")] == [0, 1]


def test_unreachable_server_falls_back_to_offline_in_bounded_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    start = time.monotonic()
    loggers = build(tmp_path, init_timeout=1.0)
    log(loggers, range(3))
    loggers.finish(0)
    # The wait is bounded: a busy machine makes it longer, a hang would make it endless.
    assert time.monotonic() - start < 60
    assert loggers.wandb_mode == "offline"
    [warning] = ours(caplog)
    assert capfd.readouterr() == ("", f"{warning}\n")
    path = next(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert sorted(logged_keys(path)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("variables", "mode", "became", "warnings"),
    [
        ({}, "auto", "offline", 0),
        ({}, "online", "offline", 1),
        ({"WANDB_API_KEY": "short"}, "auto", "offline", 1),
        ({"WANDB_MODE": "dryrun", "WANDB_API_KEY": "a" * 40}, "auto", "offline", 0),
        ({"WANDB_MODE": "disabled"}, "auto", "disabled", 0),
        ({"WANDB_MODE": "sideways"}, "auto", "offline", 1),
        ({}, "disabled", "disabled", 0),
    ],
)
def test_mode_never_prompts_and_warns_at_most_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    mode: str,
    became: str,
    warnings: int,
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        pytest.fail("the client asked for input")

    monkeypatch.setattr("wandb.sdk.lib.wbauth.authenticate._use_prompted_auth", refuse)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    loggers = build(tmp_path, mode=mode)
    log(loggers, range(1))
    loggers.finish(0)
    assert loggers.wandb_mode == became
    assert len(ours(caplog)) == warnings


def test_a_live_run_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    other = wandb.init(mode="offline", dir=str(tmp_path), settings=wandb.Settings(silent=True))
    loggers = build(tmp_path / "run")
    assert loggers.loggers[1].version not in ("", other.id)
    loggers.finish(0)
    assert wandb.run is other
    other.log({"still": 1})
    other.finish()


def test_other_ranks_hold_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    loggers = build(tmp_path)
    log(loggers, range(2))
    assert loggers.loggers[1].version == ""
    loggers.finish(0)
    assert list(tmp_path.iterdir()) == []


def test_no_wandb_needs_no_client(tmp_path: Path) -> None:
    loggers = build_loggers(NoLogger(), logged(tmp_path))
    log(loggers, range(1))
    loggers.finish(0)
    assert (loggers.wandb_mode, len(loggers.loggers)) == ("none", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_offline_summary_prints_a_command_that_finds_the_runs(tmp_path: Path) -> None:
    runs = [tmp_path / "my sweep" / name for name in ("a", "b", "c")]
    for run in runs[:2]:
        loggers = build(run)
        log(loggers, range(1))
        loggers.finish(0)
    lines = offline_summary(runs)
    assert lines[0].startswith("W&B: 2 runs are kept offline")
    command = lines[1].replace("wandb sync", f"{sys.executable} -m wandb sync --dry-run")
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    for run in runs[:2]:
        path = next(run.glob("wandb/offline-run-*/*.wandb"))
        assert path.parent.name in shown.stdout + shown.stderr
        path.with_name(f"{path.name}.synced").touch()
    assert offline_summary(runs) == []


def test_a_torn_transaction_log_is_read_up_to_the_cut(tmp_path: Path) -> None:
    loggers = build(tmp_path)
    log(loggers, range(2000))
    loggers.finish(0)
    path = next(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert sorted(logged_keys(path)) == list(range(2000))
    path.write_bytes(path.read_bytes()[:-9000])
    torn = sorted(logged_keys(path))
    assert 1000 < len(torn) < 2000
    assert torn == list(range(len(torn)))
