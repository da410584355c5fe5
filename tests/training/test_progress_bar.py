"""A run's line in a terminal: no number is cut, and the time left counts validation."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from harness.commands import Answer
from rich.console import Console
from rich.progress import Progress

from lm_experiments.training.config import RunConfig, load_config
from lm_experiments.training.progress import BarLine, RunClock, bar_line

WIDTHS = (60, 80, 100, 120)
LONG = "model.attention_pattern=[local,global] model.norm.eps=1e-06 ffn=swiglu s0"
PARTS = ["39999/40000", "val loss 5.6674", "3 h 20 min left"]
NUMBERS = ["loss 5.339", "1,119,376 tokens/s", "lr 7.8e-04"]


@pytest.mark.parametrize(("width", "label"), list(product(WIDTHS, ["a s0", LONG])))
def test_a_line_fits_and_holds_each_part_whole(width: int, label: str) -> None:
    line = bar_line(label, "971197b6", PARTS, NUMBERS, width)
    assert len(line) <= width
    name, _, said = line.partition(": ")
    assert said.split(", ")[:3] == PARTS
    assert [part for part in said.split(", ")[3:] if part not in NUMBERS] == []
    assert name == label or name.endswith("~971197b6")


def test_what_matters_most_is_said_first_as_far_as_there_is_room() -> None:
    said = [bar_line(LONG, "971197b6", PARTS, NUMBERS, width).count(",") for width in WIDTHS]
    assert said == sorted(said)
    assert NUMBERS[0] in bar_line(LONG, "971197b6", PARTS, NUMBERS, 80)
    assert bar_line("a s0", "971197b6", PARTS, NUMBERS, 120).endswith(NUMBERS[2])
    # Below the name, only what is always said.
    assert bar_line(LONG, "971197b6", PARTS, NUMBERS, 46) == ", ".join(PARTS)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_terminal_shows_the_line_uncut(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    bar = Progress(BarLine(console), console=console)
    fields = {"mark": "971197b6", "left": 12_000.0, "validated": PARTS[1:2], "numbers": NUMBERS}
    bar.add_task(LONG, total=40_000, completed=39_999, **fields)
    console.print(bar.get_renderable())
    assert isinstance(console.file, io.StringIO)
    [line] = console.file.getvalue().splitlines()
    assert len(line) <= width
    assert "…" not in line
    assert all(part in line for part in PARTS)


@pytest.fixture
def config(run_of: Callable[..., Path]) -> RunConfig:
    """A run of 100 steps of 256 tokens, with a validation after each 10."""
    there = load_config(run_of())
    return replace(there, trainer=replace(there.trainer, max_steps=100, val_every=10))


def test_the_time_left_counts_the_validations_to_come(config: RunConfig) -> None:
    # Validation is as large as 12 steps, and so costs 4 before it was timed; the test set half.
    clock = RunClock(config, (12 * 256, 6 * 256))
    clock.start(0, 1000.0)
    assert clock.left(0, 1000.0) is None
    assert clock.left(5, 1005.0) == pytest.approx(95 + 10.5 * 4)
    clock.pause(1010.0)
    clock.resume(1016.0)
    assert clock.left(10, 1016.0) == pytest.approx(90 + 9.5 * 6)
    assert clock.left(15, 1021.0) == pytest.approx(85 + 9.5 * 6)


def test_a_continued_run_counts_what_is_left_of_it(config: RunConfig) -> None:
    clock = RunClock(config, (12 * 256, 0))
    clock.start(55, 0.0)
    assert clock.left(55, 0.0) is None
    assert clock.left(57, 4.0) == pytest.approx(2 * 43 + 5 * 8)


def test_elsewhere_each_validation_is_a_line(train: Callable[..., Answer]) -> None:
    answer = train("trainer.val_every=2", "trainer.max_steps=4", "arm=mine")
    assert answer.code == 0
    first, last = [line for line in answer.err.splitlines() if line.startswith("mine s0: ")]
    assert re.match(r"mine s0: step 2/4, val loss \d\.\d{4}, loss \d\.\d{3}, ", first)
    assert re.search(r", about [\d.]+ s left$", first)
    assert last.startswith("mine s0: step 4/4, val loss ")
    assert "left" not in last
