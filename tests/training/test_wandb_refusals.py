"""What W&B's client refuses, and what it cannot do here: a sentence, and the log stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.wandb_runs import build, clean_client, history, log

from lm_experiments.training.wandb import client as wandb_client
from lm_experiments.training.wandb.offline import offline_summary, synced_mark
from lm_experiments.training.wandb.run_id import run_id


@pytest.fixture(autouse=True)
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with clean_client(tmp_path, monkeypatch):
        yield


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("WANDB_TAGS", "", "is refused (Tag at index 0 is empty"),
        ("WANDB_BASE_URL", "nonsense", "is refused (Input should be a valid URL"),
        ("WANDB_MODE", "bogus", "is refused (Input should be 'online'"),
        ("WANDB_SILENT", "maybe", "is refused (Input should be a valid boolean"),
        ("WANDB_PROJECT", "a/b", "is refused (Invalid project name"),
        ("WANDB_API_KEY", "abc\ndef", "invalid"),
    ],
)
def test_a_variable_that_the_client_refuses_is_named_and_the_log_is_kept_offline(
    name: str,
    value: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    loggers = build(tmp_path / "run")
    log(loggers, range(2))
    loggers.finish(0)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"W&B: {name} {why}")
    assert line.endswith("; this run's W&B log is offline.")
    assert loggers.wandb_mode == "offline"
    assert len(history(tmp_path / "run")) == 2


def test_a_server_named_by_a_refused_variable_is_not_replaced_by_the_public_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "nonsense")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert build(tmp_path / "run", mode="online").wandb_mode == "offline"


def test_a_home_that_cannot_be_written_costs_no_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    # What the code sets is taken back.
    monkeypatch.setenv("WANDB_CACHE_DIR", "")
    monkeypatch.delenv("WANDB_CACHE_DIR")
    loggers = build(tmp_path / "run")
    loggers.finish(0)
    assert loggers.wandb_mode == "offline"
    assert capfd.readouterr() == ("", "")


def test_a_run_that_was_deleted_in_wandb_gets_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loggers = build(tmp_path / "run")
    log(loggers, range(2))
    loggers.finish(0)
    before = (tmp_path / "run" / "wandb_id").read_text()
    start = wandb_client._init

    def init(config: Any, home: Path, *rest: Any) -> Any:
        if run_id(home, home) == before.split()[0]:
            raise RuntimeError("HTTP 409: run x was previously created and deleted; try a new name")
        return start(config, home, *rest)

    monkeypatch.setattr(wandb_client, "_init", init)
    again = build(tmp_path / "run", resume=1)
    again.finish(0)
    assert again.wandb_mode == "offline"
    assert (tmp_path / "run" / "wandb_id").read_text() != before
    [uploaded] = [line for line in offline_summary([tmp_path / "run"]) if "wandb sync" in line]
    assert uploaded.endswith("wandb/offline-run-*")
    logs = sorted((tmp_path / "run").glob("wandb/offline-run-*/*.wandb"))
    assert [synced_mark(path).exists() for path in logs] == [
        before.split()[0] in p.name for p in logs
    ]
