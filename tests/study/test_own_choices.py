"""Optimizers, schedules, tokenizers and loggers of the user's own, by ``code_paths``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

CODE = '''
from __future__ import annotations
from dataclasses import dataclass
import torch
from lightning.pytorch.loggers import CSVLogger
from lm_experiments.data.tokenizers import ByteTokenizer
from lm_experiments.registry import register
from lm_experiments.training.logger_config import LoggerConfig
from lm_experiments.training.optimizers import Optimizer, parameter_groups
from lm_experiments.training.schedules import Schedule

@register("optimizer", "halved")
@dataclass(frozen=True)
class Halved(Optimizer):
    """SGD at a fraction of the rate.

    Attributes:
        fraction: of the rate.
    """
    fraction: float = 0.5

    def build(self, model):
        groups = parameter_groups(model, self.weight_decay)
        return torch.optim.SGD(groups, lr=self.lr * self.fraction)

@register("schedule", "stairs")
@dataclass(frozen=True)
class Stairs(Schedule):
    """Half the rate from a step on.

    Attributes:
        step: the first at half the rate.
    """
    step: int = 2

    def _curve(self, step, warmup, total):
        return 1.0 if step < self.step else 0.5

@register("tokenizer", "halfbytes")
class HalfBytes(ByteTokenizer):
    """Bytes by another name."""

@register("logger", "rows")
@dataclass(frozen=True)
class Rows(LoggerConfig):
    """A CSV file beside the metrics."""

    def build(self, run, resume_step):
        return CSVLogger(run.directory, name="csv", version="", flush_logs_every_n_steps=1)
'''
WORDS = (
    "code_paths=[mine.py]",
    "optimizer=halved",
    "optimizer.lr=0.1",
    "schedule=stairs",
    "schedule.warmup_steps=0",
    "tokenizer=halfbytes",
    "logger=rows",
)


def rates(directory: Path) -> list[float]:
    rows = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    return [row["train/learning_rate"] for row in rows if "train/learning_rate" in row]


def test_all_of_them_train_a_run(train: Callable[..., Any]) -> None:
    Path("mine.py").write_text(CODE, encoding="utf-8")
    answer = train(*WORDS, "name=mine")
    assert answer.code == 0, answer.err
    [directory] = [path for path in Path("runs/mine").iterdir() if path.is_dir()]
    result = json.loads((directory / "result.json").read_text())
    assert result["status"] == "done"
    assert "halved" in result["arm"] and "stairs" in result["arm"]
    assert rates(directory) == [0.1, 0.05, 0.05]
    assert (directory / "csv" / "metrics.csv").read_text().startswith(("epoch", "step", "train"))


def test_their_options_make_other_runs(train: Callable[..., Any]) -> None:
    Path("mine.py").write_text(CODE, encoding="utf-8")
    answer = train("-m", *WORDS, "optimizer.fraction=0.5,0.25", "plan=true", "name=mine")
    assert answer.code == 0, answer.err
    assert "fraction=0.5" in answer.out and "fraction=0.25" in answer.out
    answer = train(*WORDS, "optimizer.momentum=0.9")
    assert "optimizer=halved has no option momentum; it has optimizer.lr," in answer.err
