"""A tuned study's table: noise of the choice, edges of the grid, sensitivity."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from figure_contents import outside, words
from matplotlib.figure import Figure
from synthetic_studies import GRID, KEY, StudyFactory

from lm_experiments.report import Table, build_table, collect
from lm_experiments.report.pictures.sensitivity import draw_sensitivity
from lm_experiments.report.statistics.contrasts import Contrast
from lm_experiments.report.statistics.moderated import moderated_t
from lm_experiments.report.statistics.tuning_noise import choice_noise
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.notes import notes
from lm_experiments.report.table.rows import Row
from lm_experiments.report.table.warnings import warnings
from lm_experiments.rundir.metrics import write_rows
from lm_experiments.rundir.results import read_result, write_result
from lm_experiments.rundir.study import Tuning

SEEDS = (100, 101, 102)
# The middle value is best by a little, and the largest where another draw of the seeds decides.
CLOSE = {1e-3: (3.30, 3.30, 3.30), 3e-3: (3.10, 3.10, 3.40), 1e-2: (3.23, 3.23, 3.23)}


@pytest.fixture
def tuned(study: StudyFactory) -> StudyFactory:
    """A study of which every arm is tuned with three seeds, "silu" by a close call."""
    study.tuned, study.tuning_seeds = True, SEEDS
    for arm in study.arms:
        losses = CLOSE if arm == "silu" else {rate: (3.2 + abs(rate - 3e-3),) * 3 for rate in GRID}
        for rate, values in losses.items():
            study.trials |= {(arm, s, rate): v for s, v in zip(SEEDS, values, strict=True)}
    return study


def table_of(study: StudyFactory) -> Table:
    return build_table(collect(study.whole()))


def row_of(table: Table, arm: str) -> Row:
    return next(row for row in table.rows if row.arm == arm)


def difference(table: Table, arm: str) -> Contrast:
    found = row_of(table, arm).difference
    assert found is not None
    return found


def errors(found: Contrast) -> tuple[float, float, float, float]:
    assert found.error is not None and found.degrees is not None
    assert found.test_error is not None and found.test_degrees is not None
    return found.error, found.degrees, found.test_error, found.test_degrees


def test_the_noise_of_the_choice_enters_the_interval_and_both_p(tuned: StudyFactory) -> None:
    table = table_of(tuned)
    noise = choice_noise(list(CLOSE.values()))
    assert noise.variance > 0
    found, clear = difference(table, "silu"), difference(table, "layernorm")
    plain = found.sd / math.sqrt(5) if found.sd else 0.0
    differences = [difference(table, c.arm).differences for c in table.comparisons]
    at = [c.arm for c in table.comparisons].index("silu")
    moderated = moderated_t(np.array(differences))
    error, degrees, test_error, test_degrees = errors(found)
    assert error**2 == pytest.approx(plain**2 + noise.variance)
    assert test_error**2 == pytest.approx(moderated.error[at] ** 2 + noise.variance)
    assert degrees == pytest.approx(error**4 / (plain**4 / 4 + noise.variance**2 / 2))
    spread = moderated.error[at] ** 4 / moderated.degrees[at] + noise.variance**2 / 2
    assert test_degrees == pytest.approx(test_error**4 / spread)
    assert errors(clear)[0] == pytest.approx(clear.sd / math.sqrt(5) if clear.sd else 0.0)
    assert found.half_width and clear.half_width and found.half_width > 3 * clear.half_width
    assert found.p and found.plain_p and found.plain_p > 0.01
    assert any("hold the noise of the choice" in line for line in notes(table))
    assert not any("noise of tuning" in line for line in warnings(table))


def test_equivalence_holds_the_noise_of_the_choice_too(tuned: StudyFactory) -> None:
    tuned.margin = 0.05
    wide = difference(table_of(tuned), "silu")
    tuned.trials |= {("silu", seed, 3e-3): 3.0 for seed in SEEDS}
    tuned.root, tuned.entries = tuned.root.with_name("clear"), []
    clear = difference(table_of(tuned), "silu")
    assert wide.equivalent_p and clear.equivalent_p
    assert wide.equivalent_p > 10 * clear.equivalent_p


def test_at_the_common_setting_there_is_no_choice(tuned: StudyFactory) -> None:
    common = row_of(table_of(tuned), "silu").common
    assert common and common.comparisons[0].contrast
    found = common.comparisons[0].contrast
    assert found.error == pytest.approx(found.sd / math.sqrt(5) if found.sd else 0.0)


@pytest.mark.parametrize("on_edge", ["silu", "baseline"])
def test_an_edge_of_the_grid_leaves_no_verdict(tuned: StudyFactory, on_edge: str) -> None:
    tuned.trials |= {(on_edge, seed, 1e-2): 3.0 for seed in SEEDS}
    table = table_of(tuned)
    found = {item.arm: item.verdict for item in table.comparisons}
    expected = {"silu"} if on_edge == "silu" else set(found)
    assert {arm for arm, word in found.items() if word == "edge of the grid"} == expected
    cells = {c.title: c.text(row_of(table, "silu")) for c in columns(table)}
    assert cells.get("p (Holm)", "-") == "-"
    assert any("Its contrasts have no verdict; widen study.tune.grid" in x for x in notes(table))


@pytest.mark.parametrize("seeds", [(100,), (100, 101)])
def test_fewer_than_three_tuning_seeds_are_warned_about(
    tuned: StudyFactory, seeds: tuple[int, ...]
) -> None:
    tuned.tuning_seeds = seeds
    table = table_of(tuned)
    [line] = [line for line in warnings(table) if "noise of tuning" in line]
    assert "not in the intervals and p of" in line
    assert line.endswith("; type study.tune.seeds=[100,101,102].")
    found = difference(table, "silu")
    assert found.error == pytest.approx(found.sd / math.sqrt(5) if found.sd else 0.0)


def test_by_default_three_seeds_tune() -> None:
    assert Tuning(grid=[1e-3, 3e-3, 1e-2]).seeds == [1000, 1001, 1002]


def test_sensitivity_is_shown_where_the_first_loss_is_known(
    tuned: StudyFactory, figures: list[Figure]
) -> None:
    tuned.broken["nope", 101] = {"outcome": "diverged", "val_loss": 9.0}
    assert not any("sensitivity" in column.title for column in columns(table_of(tuned)))
    tuned.root, tuned.entries = tuned.root.with_name("known"), []
    for arm in tuned.arms:
        for seed in SEEDS:
            tuned.changes[arm, seed] = {"initial_loss": 7.0}
    tuned.broken = {}
    table = table_of(tuned)
    found = {row.arm: row.tuned.sensitivity for row in table.rows if row.tuned}
    means = [sum(values) / 3 for values in CLOSE.values()]
    assert found["silu"] == pytest.approx(sum(means) / 3 - min(means))
    shown = {column.title: column.text(row_of(table, "silu")) for column in columns(table)}
    assert shown["lr sensitivity"] == f"{found['silu']:.4f}"
    record = {r["arm"]: r for r in csv.DictReader(io.StringIO(csv_text(table)))}["silu"]
    assert float(record[f"{KEY}_sensitivity"]) == found["silu"]
    silu = next(a for a in json.loads(json_text(table))["arms"] if a["arm"] == "silu")
    assert silu["tuned"]["noise"]["variance"] == float(record[f"{KEY}_choice_variance"])
    assert any("Wortsman et al. 2023" in line for line in notes(table))
    assert draw_sensitivity(table, tuned.root / "sensitivity.png")
    labels = [text for text in words(figures[-1]) if text.startswith("silu (0.003")]
    assert labels == [f"silu (0.003), sensitivity {found['silu']:.3f}"]
    assert outside(figures[-1]) == []


def test_a_failed_trial_counts_as_its_first_loss(tuned: StudyFactory) -> None:
    for arm in tuned.arms:
        for seed in SEEDS:
            tuned.changes[arm, seed] = {"initial_loss": 7.0}
    tuned.trials["silu", 102, 1e-2] = math.inf
    row = row_of(table_of(tuned), "silu")
    assert row.tuned and row.tuned.sensitivity is not None
    best = sum(CLOSE[3e-3]) / 3
    assert row.tuned.sensitivity == pytest.approx((3.3 + best + 7.0) / 3 - best)
    assert row.tuned.noise and row.tuned.noise.shares[-1] == 0.0


def test_an_arm_of_which_nothing_trained_with_every_seed_is_named(tuned: StudyFactory) -> None:
    for seed, rate in zip(SEEDS, GRID, strict=True):
        tuned.trials["silu", seed, rate] = math.inf
    [line] = [line for line in warnings(table_of(tuned)) if "noise of tuning" in line]
    assert "p of silu, as no value trained with every tuning seed." in line


def halve(folder: Path) -> None:
    """Let all trials but the chosen ones have ended at the rung, where their losses are known."""
    values = json.loads((folder / "sweep.json").read_text())
    values["study"]["tune"]["halving"] = True
    (folder / "sweep.json").write_text(json.dumps(values))
    chosen = {arm: found["value"] for arm, found in values["study"]["tune"]["chosen"].items()}
    for row in values["runs"]:
        run = folder / row["directory"]
        found = read_result(run)
        if row["role"] == "tune" and found is not None:
            (run / "config.yaml").write_text("trainer:\n  max_steps: 800\n")
            write_rows(run / "metrics.jsonl", [{"step": 100, "val/loss": found.val_loss}])
            if row["setting"]["optimizer.lr"] != chosen[row["arm"]]:
                write_result(run, replace(found, status="ended", val_loss=None, outcome=None))


def test_what_halving_ended_is_told_and_the_noise_is_that_of_its_rung(tuned: StudyFactory) -> None:
    folder = tuned.whole()
    whole = difference(build_table(collect(folder)), "silu")
    halve(folder)
    table = build_table(collect(folder))
    row = row_of(table, "silu")
    assert row.tuned is not None
    assert (row.tuned.noise, row.tuned.sensitivity) == (choice_noise(list(CLOSE.values())), None)
    assert difference(table, "silu").half_width == whole.half_width
    trials = len(table.sweep.trials)
    ended = trials - 3 * len(table.rows)
    [line] = [line for line in notes(table) if line.startswith("Halving ended")]
    assert line.startswith(f"Halving ended {ended} of {trials} trials")
    assert any("as it was at the first rung" in line for line in notes(table))
    assert not any("noise of tuning" in line for line in warnings(table))
    assert draw_sensitivity(table, folder / "sensitivity.png")
    trial = next(run for run in table.sweep.trials if run.arm == "silu")
    (trial.directory / "metrics.jsonl").unlink()
    again = row_of(build_table(collect(folder)), "silu").tuned
    assert again is not None
    assert again.noise is None
