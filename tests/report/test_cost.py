"""A table says what its arms are equal in, what came out, and which are of unlike size."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from synthetic_ladders import BASELINE, climbing
from synthetic_runs import SweepFactory, history, result_of
from synthetic_studies import StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import Table, build_table, collect
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.cost import Cost, alike, apart, unlike_size
from lm_experiments.report.table.cost_notes import equal_in, to_baseline
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.notes import notes
from lm_experiments.report.table.warnings import warnings
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.rundir.results import SECONDS, TOKENS

BASE: dict[str, Any] = {
    "parameters": {"total": 1000, "non_embedding": 800, "ffn": 600},
    "train_flops": 5_000_000,
    "match_tolerance": 0.01,
}


def table_of(root: Path) -> Table:
    return build_table(collect(root))


def compared(table: Table) -> str:
    [line] = [note for note in notes(table) if note.startswith("Compared at")]
    return line


def with_values(folder: Path, **values: Any) -> None:
    write_identity(folder, Identity("c", "d", {f"model.{key}": v for key, v in values.items()}))


def test_what_is_within_tolerance_is_alike_and_the_rest_is_told() -> None:
    base = Cost(tokens=1000, ffn=600, parameters=1000, flops=5e6, step=0.01)
    own = Cost(tokens=1005, ffn=605, parameters=1100, flops=5.2e6, seconds=1.0, step=0.01)
    assert alike(own, base) == ["tokens", "ffn"]
    assert apart(own, base) == ["parameters +10.0 %", "FLOPs +4.0 %"]
    assert alike(Cost(tokens=1006), base) == []
    assert alike(Cost(tokens=1000, seconds=1.0), Cost(seconds=1.0)) == ["seconds"]


def test_models_of_unlike_size_are_told_by_layers_width_and_parameters() -> None:
    base = Cost(parameters=1000, n_layers=4, d_model=128)
    assert unlike_size(Cost(parameters=1009, n_layers=4, d_model=128), base) == []
    assert unlike_size(Cost(parameters=900, n_layers=4, d_model=128), base) == [
        "parameters -10.0 %"
    ]
    found = unlike_size(Cost(parameters=3000, n_layers=12, d_model=256, tolerance=0.05), base)
    assert found == ["12 layers for 4", "256 width for 128", "parameters +200.0 %"]


def test_the_notes_group_arms_by_what_they_are_equal_in(sweep: SweepFactory) -> None:
    fewer = {**BASE["parameters"], "total": 900}
    sweep.done("base", {0: 3.1, 1: 3.2}, **BASE)
    sweep.done("norm", {0: 3.2, 1: 3.3}, **BASE)
    sweep.done("few", {0: 3.4, 1: 3.5}, **{**BASE, "parameters": fewer, "train_flops": 4_500_000})
    table = table_of(sweep.plan())
    assert compared(table) == (
        "Compared at equal tokens, feed-forward parameters, parameters and FLOPs: norm; at equal "
        "tokens and feed-forward parameters: few (parameters -10.0 %, FLOPs -10.0 %)."
    )
    [caveat] = [note for note in notes(table) if note.startswith("Caveat")]
    assert "of unlike size: few against base (parameters -10.0 %). " in caveat
    shown = {c.title: c for c in columns(table, titles=["equal", "tokens to baseline"])}
    assert [shown["equal"].text(row) for row in table.rows] == [
        "-",
        "tokens, feed-forward parameters, parameters, FLOPs",
        "tokens, feed-forward parameters",
    ]
    assert "equal" not in [column.title for column in columns(table)]


def test_depth_and_width_come_from_the_runs_own_configuration(sweep: SweepFactory) -> None:
    for arm, layers in (("base", 4), ("deep", 12)):
        folder = sweep.run(arm, result=result_of(arm, 0, 3.0, **BASE))
        with_values(folder, n_layers=layers, d_model=64, document_mask=arm == "deep")
    for row in sweep.planned:
        object.__setattr__(row, "changes", ["model.n_layers", "model.document_mask"])
    said = notes(table_of(sweep.plan()))
    assert any("deep against base (12 layers for 4)" in note for note in said)
    assert (
        "FLOPs count attention across documents too, which a document mask leaves out (deep)."
        in said
    )


@pytest.mark.parametrize("equal", ["flops", "seconds"])
def test_arms_of_equal_budgets_may_differ_in_tokens(sweep: SweepFactory, equal: str) -> None:
    sweep.done("base", {0: 3.1, 1: 3.2}, **BASE, equal=equal)
    sweep.done(
        "fast", {0: 3.0, 1: 3.1}, **{**BASE, "tokens": 4_915_200, "equal": equal, "steps": 1200}
    )
    table = table_of(sweep.plan())
    assert not any("differ in tokens" in line for line in warnings(table))
    said = compared(table)
    assert "fast (tokens +20.0 %" in said
    assert ("timed seconds" in said) == (equal == "seconds")


@pytest.mark.parametrize("equal", [None, "steps"])
def test_other_arms_may_not(sweep: SweepFactory, equal: str | None) -> None:
    sweep.done("base", {0: 3.1}, equal=equal)
    sweep.done("fast", {0: 3.0}, tokens=4_915_200, equal=equal)
    with pytest.raises(InputError, match=r"did not train on the same budget"):
        table_of(sweep.plan())


def test_runs_of_one_arm_have_one_budget_all_the_same(sweep: SweepFactory) -> None:
    sweep.done("base", {0: 3.1}, equal="flops")
    sweep.done("base", {1: 3.0}, tokens=4_915_200, equal="flops")
    with pytest.raises(InputError, match=r"did not train on the same budget"):
        table_of(sweep.plan())


def test_nothing_is_said_of_the_way_to_a_loss_before_all_runs_have_finished(
    sweep: SweepFactory,
) -> None:
    for seed in (0, 1, 2):
        for arm, loss in (("base", 3.2), ("new", 3.0)):
            found = result_of(arm, seed, loss)
            sweep.run(arm, seed, result=found, metrics=history(loss, seed))
    assert any("to the final loss of base" in note for note in notes(table_of(sweep.plan())))
    sweep.run("new", 3, exists=False)
    assert not any("to the final loss of base" in n for n in notes(table_of(sweep.plan())))


def test_what_it_takes_to_the_baselines_loss_is_in_every_format(sweep: SweepFactory) -> None:
    for arm, loss in (("base", 3.2), ("new", 3.0), ("old", 3.4)):
        for seed in (0, 1, 2):
            metrics = history(loss, seed)
            found = result_of(arm, seed, loss, train_flops=10**9, seconds=9.0)
            sweep.run(arm, seed, result=found, metrics=metrics)
    table = table_of(sweep.plan())
    [note] = [note for note in notes(table) if note.startswith("Tokens to the final loss of base")]
    assert ": new 2.33x fewer [2.26, 2.39]; where the learning rate decays this is a b" in note
    assert "old" not in note.split(";")[0]
    shown = {c.title: c for c in columns(table, titles=["tokens to baseline"])}
    texts = {row.arm: shown["tokens to baseline"].text(row) for row in table.rows}
    assert texts["new"] in note
    assert (texts["base"], texts["old"]) == ("-", "0 of 3 reach it")
    records = {row["arm"]: row for row in csv.DictReader(io.StringIO(csv_text(table)))}
    arms = {arm["arm"]: arm for arm in json.loads(json_text(table))["arms"]}
    ratio = arms["new"]["to_baseline"]["tokens"]["ratio"]
    assert f"{1 / ratio:.2f}x fewer" in note
    assert float(records["new"]["tokens_to_baseline"]) == ratio
    assert (records["old"]["tokens_to_baseline"], records["old"]["reached_baseline"]) == ("", "0")
    assert arms["base"]["to_baseline"] == {}


@pytest.fixture
def climbed(study: StudyFactory) -> StudyFactory:
    """A ladder of budgets whose arm gets as many seconds as its baseline, which is as usual."""
    study.curves, study.seeds = True, (0, 1, 2)
    climbing(study, {"fast": (-0.5, -0.5, -0.5)})
    for (arm, _), changes in study.changes.items():
        changes |= {"seconds": 9.0, "equal": "seconds" if arm.startswith("fast") else "steps"}
    return study


def test_an_arm_of_a_ladder_is_held_against_the_baseline_of_its_rung(
    climbed: StudyFactory,
) -> None:
    table = table_of(climbed.whole())
    found = {row.arm: to_baseline(table, row, TOKENS) for row in table.rows}
    reached = {arm: it.reached for arm, it in found.items() if it}
    assert reached == {f"fast at {n} steps": 3 for n in (75, 300, 900)}
    assert any(f"final loss of {BASELINE} on the same rung: fast at" in n for n in notes(table))
    assert any("; steps 75, 300, 900; training tokens 76,800, 307,200, " in n for n in notes(table))


def test_two_seeds_do_not_say_who_is_sooner(climbed: StudyFactory) -> None:
    climbed.seeds = (0, 1)
    assert not any(" to the final loss of " in note for note in notes(table_of(climbed.whole())))


def test_seconds_are_equal_to_those_of_the_declared_baseline_of_a_rung(
    climbed: StudyFactory,
) -> None:
    table = table_of(climbed.whole())
    equal = {row.arm: "timed seconds" in equal_in(table, row) for row in table.rows}
    assert {arm for arm, same in equal.items() if same} == {
        f"fast at {n} steps" for n in (75, 300, 900)
    }
    # Timed steps count, not the clock.
    [row] = [row for row in table.rows if row.arm == "fast at 75 steps"]
    by_time, by_tokens = (to_baseline(table, row, axis) for axis in (SECONDS, TOKENS))
    assert by_time and by_tokens and by_time.ratio == pytest.approx(by_tokens.ratio)
    other = build_table(collect(climbed.root), f"{BASELINE} at 75 steps")
    equal = {row.arm: "timed seconds" in equal_in(other, row) for row in other.rows}
    assert [arm for arm, same in equal.items() if same] == ["fast at 75 steps"]
    far = next(row for row in other.rows if row.arm == "fast at 900 steps")
    assert to_baseline(other, far, SECONDS) is None


def test_an_arm_that_is_not_timed_is_equal_to_none_but_by_its_clock(sweep: SweepFactory) -> None:
    for arm, equal in (("base", "seconds"), ("fast", "seconds"), ("plain", "steps")):
        sweep.done(arm, {0: 3.1, 1: 3.2}, **BASE, equal=equal)
    other = build_table(collect(sweep.plan()), "plain")
    assert not any("timed seconds" in equal_in(other, row) for row in other.rows)
