"""What can be chosen about loggers, what of a configuration they show, and what they import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.errors import InputError
from lm_experiments.training.logger_config import NoLogger, WandbConfig
from lm_experiments.training.wandb.description import public_config
from lm_experiments.training.wandb.settings import VARIABLES


def test_offline_summary_imports_nothing_heavy() -> None:
    assert_runs(
        "import sys, lm_experiments.training.wandb.offline;"
        "assert not {'wandb', 'lightning', 'torch'} & set(sys.modules)"
    )


@pytest.mark.slow
def test_importing_the_loggers_does_not_import_wandb() -> None:
    assert_runs(
        "import sys, lm_experiments.training.loggers; assert 'wandb' not in sys.modules",
    )


def assert_runs(code: str) -> None:
    source = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source}, check=False)
    assert done.returncode == 0


def test_config_is_plain_and_without_secrets() -> None:
    given = {"hf_token": "x", "WANDB_API_KEY": "x", "eos_token": "e", "tokens": 1, "at": Path("a")}
    assert public_config({"a": (given,)}) == {"a": [{"eos_token": "e", "tokens": 1, "at": "a"}]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "onlin"}, "logger.mode=onlin is not known; it can be auto, online, offline"),
        ({"project": "a/b"}, "logger.project='a/b' contains /"),
        ({"project": ""}, "use 1 to 128"),
        ({"tags": ["x" * 65]}, "use 1 to 64"),
        ({"init_timeout": 0}, "not a positive number of seconds"),
    ],
)
def test_bad_options_say_what_is_allowed(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        WandbConfig(**options)


def test_the_plan_says_what_is_in_force_and_from_where(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES.values(), "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    assert NoLogger().plan("grid", 1) == []
    [line] = WandbConfig().plan("grid", 1)
    assert line == "W&B: project lm_experiments, group grid, mode auto."
    monkeypatch.setenv("WANDB_TAGS", "a,b")
    monkeypatch.setenv("WANDB_ENTITY", "team")
    monkeypatch.setenv("WANDB_MODE", "offline")
    [line] = WandbConfig(entity="us", tags=["a", "b"]).plan("grid", 200)
    wanted = "project us/lm_experiments, group grid, tags a, b, mode offline"
    assert line == f"W&B: {wanted} (from WANDB_TAGS, WANDB_MODE)."
    assert WandbConfig(mode="disabled").plan("grid", 200) == []


def test_more_runs_at_once_than_the_service_takes_are_advised_to_stay_offline() -> None:
    config = WandbConfig(mode="online")
    assert len(config.plan("grid", 100)) == 1
    assert "logger.mode=offline" in config.plan("grid", 101)[1]
    assert len(WandbConfig(mode="offline").plan("grid", 101)) == 1
