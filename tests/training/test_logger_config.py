"""What can be chosen about loggers, what of a configuration they show, and what they import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.errors import InputError
from lm_experiments.training.logger_config import WandbConfig
from lm_experiments.training.wandb.logger import public_config


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
