"""What a run that is continued takes from the command that continues it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from harness.runs import CHOICES

from lm_experiments.model import count
from lm_experiments.study.plan import PlannedRun, make_directory
from lm_experiments.training.config import RunConfig, load_config, plain_values, run_config

VALUES: dict[str, Any] = {**CHOICES, "arm": "first", "name": "sweep"}


def composed(values: dict[str, Any]) -> RunConfig:
    """With all choices filled in, as a command composes it."""
    return run_config(plain_values(run_config(values)))


def planned_run(folder: Path, config: RunConfig) -> PlannedRun:
    return PlannedRun(config, folder / "run", "c", "d", {}, count(config.model), None)


def test_a_continued_run_is_watched_and_placed_as_asked_for_now(tmp_path: Path) -> None:
    make_directory(planned_run(tmp_path, composed(VALUES)))
    trainer = {"max_steps": 10, "log_every": 1, "threads": 2, "accelerator": "cpu"}
    logger = {"name": "wandb", "mode": "offline"}
    again = {**VALUES, "arm": "second", "trainer": trainer, "logger": logger}
    make_directory(planned_run(tmp_path, composed(again)))
    there = load_config(tmp_path / "run")
    assert there == dataclasses.replace(composed(again), arm="first")


def test_the_same_command_leaves_the_configuration_untouched(tmp_path: Path) -> None:
    make_directory(planned_run(tmp_path, composed(VALUES)))
    path = tmp_path / "run" / "config.yaml"
    written = path.stat().st_mtime_ns
    make_directory(planned_run(tmp_path, composed(VALUES)))
    assert path.stat().st_mtime_ns == written
