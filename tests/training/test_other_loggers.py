"""Lightning's own loggers, alone and beside each other: what their readers find after a resume."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.wandb_runs import log, logged
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lm_experiments.training.logger_config import TensorboardConfig
from lm_experiments.training.loggers import build_loggers


def tensorboard_steps(run_dir: Path) -> list[int]:
    reader = EventAccumulator(str(run_dir / "tensorboard"))
    reader.Reload()
    return [event.step for event in reader.Scalars("train/loss")]


def csv_rows(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "csv" / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.filterwarnings("ignore:Experiment logs directory")
def test_a_resumed_run_is_appended_to_and_no_step_is_there_twice(tmp_path: Path) -> None:
    config = TensorboardConfig(also=["csv"])
    first = build_loggers(config, logged(tmp_path))
    log(first, range(1, 5))
    first.finish(1)
    second = build_loggers(config, logged(tmp_path), resume_step=2)
    log(second, range(3, 7))
    second.finish(0)
    assert second.wandb_mode == "none"
    assert tensorboard_steps(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert [int(row["step"]) for row in csv_rows(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_several_loggers_are_chosen_in_brackets(train: Callable[..., Any]) -> None:
    answer = train("logger=[tensorboard,csv]", "name=both")
    assert answer.code == 0, answer.err
    [run] = [path.parent for path in Path("runs/both").glob("*/result.json")]
    assert tensorboard_steps(run) == [1, 2, 3]
    assert [row["step"] for row in csv_rows(run)] == ["1", "2", "3", "3"]


def test_a_logger_that_is_not_there_is_one_sentence_before_any_training(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "mlflow" else found(name, *rest),
    )
    for words, says in {
        "logger=[csv,mlflow]": "type pip install 'lm_experiments[mlflow]'",
        "logger=[csv,nothing]": "logger=nothing is not a component; logger can be wandb,",
    }.items():
        answer = train(words)
        assert (answer.code, answer.out) == (2, "")
        assert says in answer.err
