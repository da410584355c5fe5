"""Tuning by halving: what it costs, whom it ends, and that it can be stopped at any point."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.tuning import better_half, pick_best
from lm_experiments.rundir.ledger import HALVED, read_ledger
from lm_experiments.rundir.metrics import loss_at, write_rows
from lm_experiments.rundir.names import METRICS
from lm_experiments.rundir.results import (
    DONE,
    ENDED,
    FAILED,
    INTERRUPTED,
    OK,
    Result,
    read_result,
    run_status,
    write_result,
)
from lm_experiments.rundir.study import Tuning
from lm_experiments.study.halving import halve

STEPS = 80
GRID = [1e-3, 2e-3, 4e-3, 8e-3]
# By arm, the final loss of each value, and how far it still is from it after the first step.
CURVES = {
    "base": ([3.4, 3.2, 3.1, 3.3], [4.0, 3.0, 2.0, 2.5]),
    "NoPE": ([3.5, 3.6, 3.8, math.nan], [2.0, 2.2, 2.6, 3.0]),
    "post": ([3.9, 3.7, 3.6, 3.5], [3.0, 2.5, 2.0, 1.6]),
}


@pytest.mark.parametrize("values", range(3, 20))
def test_it_costs_at_most_55_percent(values: int) -> None:
    tune = Tuning(grid=[float(i) for i in range(1, values + 1)], halving=True)
    assert max(tune.budget(steps) for steps in (300, 1000, 20_000)) <= 0.55


def test_four_values_cost_44_percent_of_what_they_cost_without() -> None:
    assert Tuning(grid=GRID, halving=True).budget(800) == pytest.approx((4 + 2 * 3 + 4) / 32)
    assert Tuning(grid=GRID).budget(800) == 1.0


def test_too_few_steps_for_a_rung_are_refused() -> None:
    with pytest.raises(InputError, match=r"max_steps=7; type 8 or more"):
        Tuning(grid=GRID, halving=True).rungs(7)


def test_the_better_half_is_rounded_up_and_failures_lose() -> None:
    found = better_half({1.0: [3.0, None], 2.0: [3.5, 3.5], 3.0: [3.2, 3.3]})
    assert found == [3.0, 2.0]


def test_an_edge_is_one_of_the_whole_grid() -> None:
    assert pick_best({2.0: [3.0]}, [1.0, 2.0, 3.0]).edge is None
    assert pick_best({1.0: [3.0]}, [1.0, 2.0, 3.0]).edge == "low"


@dataclass(frozen=True)
class Trial:
    """What halving uses of a planned run."""

    directory: Path
    config: Any
    spec: Any
    until: int | None = None


def trials(folder: Path, tune: Tuning, seeds: Sequence[int] = (7,)) -> list[Any]:
    found = []
    for arm in CURVES:
        for value in tune.grid:
            for seed in seeds:
                directory = folder / f"{arm}-{value}-{seed}"
                directory.mkdir(exist_ok=True)
                trainer = SimpleNamespace(max_steps=STEPS, keep="weights")
                config = SimpleNamespace(arm=arm, seed=seed, trainer=trainer)
                found.append(Trial(directory, config, SimpleNamespace(setting={tune.key: value})))
    return found


def loss(run: Any, step: int) -> float:
    ends, starts = CURVES[run.config.arm]
    value = run.spec.setting["optimizer.lr"]
    place = GRID.index(value) if value in GRID else len(GRID) - 1
    end = ends[place] + (0.0 if value in GRID else 0.2)
    return end + starts[place] * math.exp(-4 * step / STEPS) + 0.01 * (run.config.seed - 7)


@dataclass
class Training:
    """Trains by writing what the curves say; counts steps, and may be killed after some runs."""

    kill_after: float = math.inf
    steps: int = 0
    seen: list[str] = field(default_factory=list)

    def __call__(self, runs: Sequence[Any]) -> None:
        for run in runs:
            if run_status(run.directory) == DONE:
                continue
            if len(self.seen) >= self.kill_after:
                raise KeyboardInterrupt
            there, last = read_result(run.directory), run.until or STEPS
            before = (there.steps or 0) if there else 0
            self.steps += last - before
            self.seen.append(f"{run.directory.name} {before}-{last}")
            rungs = range(10, last + 1, 10)
            rows = [{"step": step, "val/loss": loss(run, step)} for step in rungs]
            write_rows(run.directory / METRICS, rows)
            end = rows[-1]["val/loss"]
            status = DONE if last == STEPS else INTERRUPTED
            found = Result(status, run.config.arm, run.config.seed, steps=last, curve_loss=end)
            done = {"outcome": OK, "val_loss": end} if status == DONE else {}
            write_result(run.directory, Result(**{**vars(found), **done}))


def best_of(runs: Sequence[Any]) -> dict[str, float]:
    found: dict[str, dict[float, list[float | None]]] = {}
    for run in runs:
        result, value = read_result(run.directory), run.spec.setting["optimizer.lr"]
        assert result is not None
        last = result.val_loss if result.usable else None
        found.setdefault(run.config.arm, {}).setdefault(value, []).append(last)
    return {arm: pick_best(losses).value for arm, losses in found.items()}


def test_the_winners_are_those_of_full_budgets_for_less_than_half(tmp_path: Path) -> None:
    tune, folders = Tuning(grid=GRID, halving=True), [tmp_path / "whole", tmp_path / "halved"]
    for folder in folders:
        folder.mkdir()
    whole, halved = (trials(folder, tune) for folder in folders)
    full, training = Training(), Training()
    full(whole)
    ended = halve(tune, halved, training)
    assert best_of(ended) == best_of(whole) == {"base": 4e-3, "NoPE": 1e-3, "post": 8e-3}
    assert training.steps / full.steps == pytest.approx(tune.budget(STEPS))
    states = [run_status(run.directory) for run in halved]
    assert (states.count(DONE), states.count(ENDED)) == (3, 9)
    entries = [entry for entry in read_ledger(folders[1]) if entry.event == HALVED]
    assert [sorted(set(entry.details.values())) for entry in entries] == [["10"], ["40"]]
    assert sum(len(entry.details) for entry in entries) == 9
    # A trial that goes on is the one that never rested.
    for run in ended:
        assert loss_at(run.directory / METRICS, STEPS) == loss(run, STEPS)


def test_stopped_anywhere_it_comes_to_the_same(tmp_path: Path) -> None:
    tune = Tuning(grid=GRID, halving=True)
    wanted = Training()
    (tmp_path / "whole").mkdir()
    halve(tune, trials(tmp_path / "whole", tune, (7, 8)), wanted)
    for number in range(0, len(wanted.seen), 5):
        folder = tmp_path / str(number)
        folder.mkdir()
        runs = trials(folder, tune, (7, 8))
        first, then, again = Training(kill_after=number), Training(), Training()
        with pytest.raises(KeyboardInterrupt):
            halve(tune, runs, first)
        ended = halve(tune, runs, then)
        assert first.steps + then.steps == wanted.steps
        assert halve(tune, runs, again) == ended
        assert again.seen == []
        assert len([e for e in read_ledger(folder) if e.event == HALVED]) == 2


def test_a_grid_that_grows_is_halved_anew_and_trains_what_is_new(tmp_path: Path) -> None:
    tune = Tuning(grid=GRID, halving=True)
    halve(tune, trials(tmp_path, tune), Training())
    grown, training = Tuning(grid=[*GRID, 1.6e-2], halving=True), Training()
    ended = halve(grown, trials(tmp_path, grown), training)
    assert best_of(ended) == {"base": 4e-3, "NoPE": 1e-3, "post": 8e-3}
    assert not any("0-10" in line and "0.016" not in line for line in training.seen)
    assert {line for line in training.seen if line.endswith(" 0-10")} == {
        f"{arm}-0.016-7 0-10" for arm in CURVES
    }


def test_trials_without_a_loss_at_the_rung_let_their_arm_go_on(tmp_path: Path) -> None:
    """They were trained to the end elsewhere, before there were rungs."""
    tune = Tuning(grid=GRID, halving=True)
    runs = trials(tmp_path, tune)
    result = Result(DONE, "base", 7, outcome=OK, val_loss=3.0, steps=STEPS)
    write_result(runs[0].directory, result)
    ended = halve(tune, runs, Training())
    assert [run.config.arm for run in ended] == ["base"] * 4 + ["NoPE", "post"]


def test_a_trial_that_was_cut_off_is_not_judged(tmp_path: Path) -> None:
    tune = Tuning(grid=GRID, halving=True)
    runs, training = trials(tmp_path, tune), Training()
    with pytest.raises(SystemExit, match=r"has not come to step 10, where its arm's values"):
        halve(tune, runs, lambda batch: training(batch[1:]))
    assert ENDED not in [run_status(run.directory) for run in runs]
    assert len(halve(tune, runs, training)) == 3


def test_a_trial_that_failed_loses_and_stays_failed(tmp_path: Path) -> None:
    tune = Tuning(grid=GRID, halving=True)
    runs = trials(tmp_path, tune)
    training = Training()

    def train(batch: Sequence[Any]) -> None:
        training([run for run in batch if run is not batch[2] or len(batch) < 12])
        for run in batch:
            if run_status(run.directory) not in (DONE, INTERRUPTED, ENDED):
                write_result(run.directory, Result(FAILED, run.config.arm, 7))

    ended = halve(tune, runs, train)
    assert run_status(runs[2].directory) == FAILED
    assert best_of(ended)["base"] == 2e-3


RunOf = Callable[..., Path]


@pytest.mark.slow
def test_a_declared_study_is_halved(train: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nbaseline: base\narms: {base: [], NoPE: [position=none]}\nseeds: [0]\n"
        "tune: {key: optimizer.lr, grid: [1.0e-4, 1.0e-2, 3.0e-2, 9.0e-2], seeds: [7], "
        "limit: 0, halving: true}\n"
    )
    words = ("-m", "study=./mine.yaml", "name=it", "trainer.max_steps=24", "trainer.log_every=4")
    planned = train(*words, "plan=true")
    assert "8 trials, of which the worse half" in planned.out
    assert "after step 3 and 12 of 24: 44% of 8 full budgets" in planned.out
    answer = train(*words)
    assert answer.code == 0, answer.err
    assert ", 6 ended by halving" in answer.out
    again = train(*words)
    assert "trials in the worse half" not in again.out
    folder = Path("runs/it")
    states = [json.loads(p.read_text())["status"] for p in folder.glob("*/result.json")]
    assert states.count("ended") == 6
    table = json.loads((folder / "table.json").read_text())
    chosen = {arm["arm"]: arm["chosen"]["value"] for arm in table["arms"]}
    whole = train(*words, "study.tune.halving=false", "name=whole")
    assert whole.code == 0, whole.err
    table = json.loads(Path("runs/whole/table.json").read_text())
    assert {arm["arm"]: arm["chosen"]["value"] for arm in table["arms"]} == chosen
