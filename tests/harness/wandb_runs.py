"""Runs that log to W&B by the real client, and their transaction logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import wandb

from lm_experiments.training.logged_run import LoggedRun
from lm_experiments.training.logger_config import WandbConfig
from lm_experiments.training.loggers import RunLoggers, build_loggers

CONFIG = {"seed": 3, "model": {"d_ff": None, "sizes": [1, 2.5, True]}, "tokenizer": {"name": "bpe"}}


@contextmanager
def clean_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No credentials, no settings files, no live client before or after a test."""
    for key in [key for key in os.environ if key.startswith("WANDB")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    wandb.teardown()
    yield
    wandb.teardown()


def build(run_dir: Path, seed: int = 3, resume: int | None = None, **options: Any) -> RunLoggers:
    run_dir.mkdir(parents=True, exist_ok=True)
    return build_loggers(WandbConfig(**options), logged(run_dir, seed), resume)


def logged(run_dir: Path, seed: int = 3, **more: Any) -> LoggedRun:
    config = {**CONFIG, "seed": seed}
    return LoggedRun(run_dir, "sweep", "pre relu", seed, config, 100, 6, **more)


def log(loggers: RunLoggers, steps: range) -> None:
    for step in steps:
        for logger in loggers.loggers:
            logger.log_metrics({"train/loss": 1.0 / (step + 1)}, step)


def records(run_dir: Path) -> list[dict[str, Any]]:
    """The transaction logs of a run, in order of start, as the client's own tool prints them."""
    found = []
    for path in sorted(run_dir.glob("wandb/*run-*/*.wandb"), key=lambda path: path.parent.name):
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        found += [json.loads(line) for line in printed.stdout.splitlines()]
    return found


def history(run_dir: Path) -> list[dict[str, Any]]:
    return [r["history"]["item"] for r in records(run_dir) if r["type"] == "history"]


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = (r for r in caplog.records if r.name.startswith("lm_experiments"))
    return [record.getMessage() for record in records]
