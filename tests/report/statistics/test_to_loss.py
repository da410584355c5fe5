"""What an arm takes to the baseline's final loss is found between points of its curve."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.report.collect import Run
from lm_experiments.report.statistics.to_loss import steps_to, to_loss, to_loss_text
from lm_experiments.rundir.metrics import append_row
from lm_experiments.rundir.names import METRICS
from lm_experiments.rundir.results import DONE, FLOPS, SECONDS, TOKENS, Result
from lm_experiments.rundir.sweeps import SweepRow

STEPS = range(100, 1001, 100)


def falling(step: float, sooner: float = 1.0) -> float:
    """A loss that falls with the logarithm of the steps, as if there were so many times more."""
    return 6.0 - 0.5 * math.log(step * sooner)


def run(folder: Path, arm: str, seed: int, sooner: float = 1.0, **changes: Any) -> Run:
    directory = folder / f"{arm}-{seed}"
    directory.mkdir(parents=True)
    for step in STEPS:
        append_row(directory / METRICS, {"step": step, "val/loss": falling(step, sooner)})
    facts: dict[str, Any] = {
        "steps": 1000,
        "tokens": 64_000,
        "train_flops": 5_000_000,
        "seconds": 50.0,
    }
    result = Result(DONE, arm, seed, val_loss=1.0, **{**facts, **changes})
    return Run(SweepRow(arm, seed, directory.name), directory, DONE, result)


def arms(folder: Path, sooner: tuple[float, ...], **changes: Any) -> tuple[list[Run], list[Run]]:
    own = [run(folder, "a", seed, by, **changes) for seed, by in enumerate(sooner)]
    return own, [run(folder, "base", seed) for seed in range(len(sooner))]


@pytest.mark.parametrize("target", [100, 137, 500, 1000])
def test_between_points_the_loss_is_a_line_over_the_logarithm_of_the_steps(target: int) -> None:
    curve = {step: falling(step) for step in STEPS}
    assert steps_to(curve, falling(target)) == pytest.approx(target)


def test_a_curve_counts_where_it_first_comes_down_to_the_loss() -> None:
    assert steps_to({10: 3.0, 20: 2.0, 30: 2.5, 40: 1.0}, 2.0) == 20
    assert steps_to({10: 3.0, 20: 2.0}, 3.5) == 10
    assert steps_to({10: 3.0, 20: 2.0}, 1.9) is None


def test_a_known_ratio_is_recovered_with_an_interval_over_seeds(tmp_path: Path) -> None:
    logs = (0.30, 0.34, 0.38)
    found = to_loss(*arms(tmp_path, tuple(map(math.exp, logs))), TOKENS)
    assert found and found.ratio and found.low and found.high
    assert found.ratio == pytest.approx(math.exp(-0.34))
    # t of two degrees of freedom, and the sd of the logarithms is 0.04.
    half = 4.302653 * 0.04 / math.sqrt(3)
    assert math.log(found.high / found.ratio) == pytest.approx(half, rel=1e-5)
    assert math.log(found.ratio / found.low) == pytest.approx(half, rel=1e-5)
    assert (found.reached, found.seeds) == (3, 3)
    assert to_loss_text(found) == "1.40x fewer [1.27, 1.55]"


def test_dearer_steps_take_as_much_more(tmp_path: Path) -> None:
    own, base = arms(tmp_path, (2.0, 2.0), train_flops=15_000_000, seconds=100.0)
    ratios = [
        found.ratio for axis in (TOKENS, FLOPS, SECONDS) if (found := to_loss(own, base, axis))
    ]
    assert ratios == pytest.approx([0.5, 1.5, 1.0])
    assert to_loss_text(to_loss(own, base, FLOPS)) == "1.50x more [1.50, 1.50]"


def test_seconds_are_those_of_timed_steps_where_these_were_made_equal(tmp_path: Path) -> None:
    own, base = arms(tmp_path, (1.0,), seconds=500.0, steps=1250)
    # The clock of the run counts unless both were timed.
    assert (found := to_loss(own, base, SECONDS)) and found.ratio == pytest.approx(8)
    found = to_loss(own, base, SECONDS, timed=True)
    assert found and found.ratio == pytest.approx(1000 / 1250)


def test_losses_per_other_tokens_are_not_reached(tmp_path: Path) -> None:
    own, base = arms(tmp_path, (2.0,), tokenizer_hash="b" * 64)
    assert to_loss(own, base, TOKENS) is None


def test_seeds_that_do_not_get_there_are_counted_and_not_averaged(tmp_path: Path) -> None:
    own, base = arms(tmp_path, (1.2, 0.9, 1.1))
    found = to_loss(own, base, TOKENS)
    assert found and (found.reached, found.seeds, found.ratio) == (2, 3, None)
    assert to_loss_text(found) == "2 of 3 reach it"


def test_only_seeds_of_both_arms_with_curves_count(tmp_path: Path) -> None:
    own, base = arms(tmp_path, (1.2, 1.2))
    assert (found := to_loss(own[:1], base, TOKENS)) and (found.seeds, found.low) == (1, None)
    assert to_loss_text(found) == "1.20x fewer"
    (base[1].directory / METRICS).unlink()
    assert to_loss(own[1:], base, TOKENS) is None
    assert to_loss([], base, TOKENS) is None


def test_the_later_row_of_a_step_that_was_logged_twice_counts(tmp_path: Path) -> None:
    own, base = arms(tmp_path, (2.0, 2.0))
    for step in STEPS:
        append_row(own[0].directory / METRICS, {"step": step, "val/loss": falling(step, 0.5)})
    found = to_loss(own, base, TOKENS)
    assert found and (found.reached, found.seeds) == (1, 2)
