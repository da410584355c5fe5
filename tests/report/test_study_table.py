"""The table of a study: declared contrasts, verdicts, controls, tuning, and what waits for what."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console
from synthetic_runs import SweepFactory, failed
from synthetic_studies import ARMS, GRID, StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import Table, build_table, collect, write_report
from lm_experiments.report.statistics.contrasts import Contrast
from lm_experiments.report.statistics.power import smallest_resolvable
from lm_experiments.report.table.columns import columns, p_text
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.latex import latex
from lm_experiments.report.table.markdown import markdown
from lm_experiments.report.table.notes import NO_VERDICTS, headline, notes
from lm_experiments.report.table.rows import Row
from lm_experiments.report.table.terminal import show_table

MARGIN = 0.01


def table_of(root: Path, baseline: str | None = None) -> Table:
    return build_table(collect(root), baseline)


def row_of(table: Table, arm: str) -> Row:
    return next(row for row in table.rows if row.arm == arm)


def verdicts(table: Table) -> dict[str, str]:
    return {item.arm: item.verdict for item in table.comparisons}


def cells(table: Table, arm: str) -> dict[str, str]:
    return {column.title: column.text(row_of(table, arm)) for column in columns(table)}


def test_verdicts_of_known_effects(study: StudyFactory) -> None:
    table = table_of(study.whole())
    assert verdicts(table) == {
        "no norm": "worse",
        "nope": "worse",
        "silu": "worse",
        "layernorm": "equivalent",
    }
    assert [row.arm for row in table.rows] == ["baseline", "layernorm", "silu", "nope", "no norm"]
    found = cells(table, "nope")
    assert (found["vs baseline"], found["95 % interval"]) == ("+0.0793", "[+0.0741, +0.0845]")
    assert found["p (Holm)"] == "<0.001"
    text = " ".join(notes(table))
    assert "over 4 contrasts, adjusted after Holm; equivalent is within 0.012 nats" in text
    assert "matched on params (within 1 %)" in text
    assert "evaluation context 128" in text
    assert "smallest difference these seeds would find (power 0.8 at .05 / 4)" in text


def test_the_smallest_resolvable_difference_is_at_the_first_step_of_holm(
    study: StudyFactory,
) -> None:
    table = table_of(study.whole())
    errors = [item.contrast.deciding for item in table.comparisons if item.contrast]
    assert len(errors) == 4
    error, degrees = max((e, d) for e, d in errors if e and d)
    sd = error * math.sqrt(5)
    assert table.resolvable == smallest_resolvable(sd, 5, alpha=0.05 / 4, degrees=degrees)
    assert "from the largest error of the paired differences" in " ".join(notes(table))


def test_the_smallest_resolvable_difference_of_one_contrast_is_that_of_its_spread(
    study: StudyFactory,
) -> None:
    study.contrasts = [["layernorm", "baseline"]]
    table = table_of(study.whole())
    found = row_of(table, "layernorm").difference
    assert found and found.sd
    assert table.resolvable == pytest.approx(smallest_resolvable(found.sd, 5))


def test_equivalent_stands_beside_the_interval_that_decides(study: StudyFactory) -> None:
    study.contrasts = [["layernorm", "baseline"]]
    table = table_of(study.whole())
    item = table.comparisons[0]
    assert item.contrast and item.contrast.within and item.contrast.error
    low = item.contrast.mean - 2.1318467 * item.contrast.error  # The 95th percentile of t with 4.
    assert item.contrast.within.low == pytest.approx(low)
    shown = cells(table, "layernorm")["equivalence interval"]
    assert shown == f"90 % [{low:+.4f}, {item.contrast.within.high:+.4f}]"
    record = {r["arm"]: r for r in csv.DictReader(io.StringIO(csv_text(table)))}["layernorm"]
    assert float(record["equivalence_low"]) == item.contrast.within.low
    statistics = json.loads(json_text(table))["contrasts"][0]["statistics"]
    assert statistics["within"]["high"] == item.contrast.within.high
    for text in (markdown(table), latex(table).replace("$", "").replace("\\%", "%")):
        assert shown in text


def test_equivalence_is_adjusted_over_the_family(study: StudyFactory) -> None:
    alone = contrast_of(study, [["layernorm", "baseline"]])
    family = contrast_of(study, [[arm, "baseline"] for arm in ARMS if arm != "baseline"])
    assert alone.within and family.within
    assert (alone.within.confidence, family.within.confidence) == (0.9, 0.975)
    assert family.within.adjusted_p == pytest.approx(4 * alone.within.adjusted_p)
    # Within the margin by the interval of one contrast alone, and not by that of four.
    assert (alone.within.equivalent, family.within.equivalent) == (True, False)
    assert max(alone.within.high, -alone.within.low) < MARGIN < family.within.high


def contrast_of(study: StudyFactory, contrasts: list[list[str]]) -> Contrast:
    """The contrast of layernorm in a study with these contrasts and MARGIN."""
    study.contrasts, study.margin = contrasts, MARGIN
    study.entries.clear()
    found = row_of(table_of(study.whole()), "layernorm").difference
    assert found
    return found


def test_the_family_is_the_declared_contrasts_without_controls(study: StudyFactory) -> None:
    study.arms["a/a"] = []
    study.controls = ("a/a",)
    study.contrasts = [["silu", "baseline"], ["a/a", "baseline"], ["nope", "silu"]]
    table = table_of(study.whole())
    assert table.plan.family == 2
    silu = row_of(table, "silu").difference
    assert silu is not None and silu.p is not None
    assert silu.adjusted_p == pytest.approx(silu.p)
    assert verdicts(table)["a/a"] == "identical"
    assert cells(table, "nope")["against"] == "silu"
    assert cells(table, "no norm")["difference"] == "-"


def test_an_arm_that_changes_nothing_says_so_and_stays_in_the_family(study: StudyFactory) -> None:
    study.arms["window"] = ["attention.window=128"]
    study.losses |= {("window", seed): study.loss("baseline", seed) for seed in study.seeds}
    table = table_of(study.whole())
    assert verdicts(table)["window"] == "identical: changes nothing"
    assert cells(table, "window")["p (Holm)"] == "-"
    nope = row_of(table, "nope").difference
    assert nope and nope.p and nope.adjusted_p == pytest.approx(4 * nope.p)
    assert any("'window' has exactly the losses of 'baseline'" in line for line in notes(table))


def test_an_undeclared_arm_that_changes_nothing_says_so(sweep: SweepFactory) -> None:
    sweep.done("clip 1e3", {0: 3.10, 1: 3.20, 2: 3.30})
    sweep.done("clip 1e6", {0: 3.10, 1: 3.20, 2: 3.30})
    assert verdicts(table_of(sweep.plan())) == {"clip 1e6": "identical: changes nothing"}


def test_a_control_that_differs_says_so(study: StudyFactory) -> None:
    study.arms["a/a"] = []
    study.controls = ("a/a",)
    study.losses["a/a", 3] = 3.3
    assert verdicts(table_of(study.whole()))["a/a"] == "differs: the study is not reproducible"


def test_a_control_on_the_baselines_own_runs_shows_nothing(study: StudyFactory) -> None:
    study.arms["a/a"] = []
    study.controls = ("a/a",)
    study.whole()
    base = {row.seed: row.directory for row in study.entries if row.arm == "baseline"}
    study.entries = [
        dataclasses.replace(row, directory=base[row.seed]) if row.arm == "a/a" else row
        for row in study.entries
    ]
    table = table_of(study.plan())
    assert verdicts(table)["a/a"] == "same runs"
    assert any("'a/a' and 'baseline' have the same configuration" in line for line in notes(table))


def test_further_contrasts_of_an_arm_are_told_below(study: StudyFactory) -> None:
    study.contrasts = [["nope", "baseline"], ["nope", "silu"]]
    lines = notes(table_of(study.whole()))
    assert any(line.startswith("nope against silu: +0.06") and "worse" in line for line in lines)


def test_a_failing_arm_is_last_and_gets_no_other_verdict(study: StudyFactory) -> None:
    study.broken["layernorm", 2] = {"outcome": "diverged", "val_loss": 9.0, "outcome_step": 340}
    table = table_of(study.whole())
    assert table.rows[-1].arm == "layernorm"
    assert verdicts(table)["layernorm"] == "fails 1 of 5"
    found = cells(table, "layernorm")
    assert (found["n"], found["p (Holm)"]) == ("4 of 5", "-")
    assert found["vs baseline"].startswith("+0.00")
    assert "layernorm diverged: seed 2 at step 340." in notes(table)


def test_an_arm_without_any_loss_keeps_its_row_and_its_place_in_the_family(
    study: StudyFactory,
) -> None:
    nan = {"outcome": "non-finite", "val_loss": math.nan}
    study.broken |= {("no norm", seed): nan for seed in study.seeds}
    table = table_of(study.whole())
    assert verdicts(table)["no norm"] == "fails 5 of 5"
    silu = row_of(table, "silu").difference
    assert silu is not None and silu.p is not None
    assert table.plan.family == 4
    assert silu.adjusted_p == pytest.approx(3 * silu.p)


def test_no_arm_is_judged_against_a_failing_baseline(study: StudyFactory) -> None:
    study.broken["baseline", 0] = {"outcome": "diverged", "val_loss": 9.0}
    study.contrasts = [[arm, "baseline"] for arm in ARMS if arm != "baseline"]
    study.contrasts.append(["nope", "silu"])
    table = table_of(study.whole())
    against = [c.verdict for c in table.comparisons if c.reference == "baseline"]
    assert against == ["baseline fails 1 of 5"] * 4
    assert table.comparisons[-1].verdict == "worse"
    assert "p (Holm)" not in cells(table, "nope")
    assert any("the reference 'baseline' fails 1 of 5" in line for line in notes(table))


def test_a_failing_reference_that_is_not_the_baseline_is_named(study: StudyFactory) -> None:
    study.broken["silu", 0] = {"outcome": "diverged", "val_loss": 9.0}
    study.contrasts = [["nope", "silu"]]
    assert verdicts(table_of(study.whole())) == {"nope": "silu fails 1 of 5"}


@pytest.mark.parametrize("failing", [1, 5])
def test_a_failing_arm_does_not_loosen_the_tests_of_the_others(
    study: StudyFactory, failing: int
) -> None:
    # Its survivors alone would have the smallest p, which Holm would have multiplied first.
    diverged = {"outcome": "diverged", "val_loss": 9.0}
    study.broken |= {("no norm", seed): diverged for seed in range(failing)}
    table = table_of(study.whole())
    nope = row_of(table, "nope").difference
    silu = row_of(table, "silu").difference
    assert nope and nope.p and silu and silu.p
    assert (nope.adjusted_p, silu.adjusted_p) == pytest.approx((4 * nope.p, 3 * silu.p))


@pytest.mark.parametrize("count", [1, 2])
def test_below_three_seeds_there_is_no_verdict(study: StudyFactory, count: int) -> None:
    study.seeds = tuple(range(count))
    table = table_of(study.whole())
    assert set(verdicts(table).values()) == {f"exploratory, n = {count}"}
    assert "p (Holm)" not in cells(table, "silu")


def test_an_unfinished_study_is_drawn_without_verdicts_or_p_values(study: StudyFactory) -> None:
    study.report()
    study.add("silu", 5, "report", exists=False)
    table = table_of(study.plan())
    assert headline(table).startswith("UNFINISHED: 25 of 26 runs finished")
    assert set(verdicts(table).values()) == {"unfinished"}
    assert all(c.contrast and c.contrast.p is None for c in table.comparisons)
    assert NO_VERDICTS in notes(table)
    assert cells(table, "nope")["vs baseline"] == "+0.0793"


def test_runs_a_study_declares_and_has_not_planned_are_waited_for(study: StudyFactory) -> None:
    study.report()
    study.seeds = (*study.seeds, 5)
    table = table_of(study.plan())
    assert headline(table).startswith("UNFINISHED: 25 of 30 runs finished")
    assert set(verdicts(table).values()) == {"unfinished"}


def test_tuning_gives_two_losses_and_judges_arms_at_their_own_best(study: StudyFactory) -> None:
    study.tuned = True
    table = table_of(study.whole())
    found = cells(table, "nope")
    assert found["best lr"] == "0.01^"
    assert float(found["val loss at own best"]) < float(found["val loss at lr 0.003"])
    assert (found["vs baseline"], found["difference at lr 0.003"]) == ("+0.0793", "+0.1663")
    assert cells(table, "silu")["best lr"] == "0.003"
    assert all(len(row.runs) == 5 and row.runs[0].role == "tuned" for row in table.rows)
    text = " ".join(notes(table))
    assert "0.001, 0.003, 0.01 with seed 100: 3 trials for each arm of 4,096,000 tokens" in text
    assert "at the edge of the grid; beyond it the arm may do better: nope, no norm." in text


def test_a_narrow_terminal_keeps_the_names_and_the_verdicts(study: StudyFactory) -> None:
    study.tuned = True
    out = io.StringIO()
    show_table(
        table_of(study.whole()),
        Console(file=out, width=100, force_terminal=True, color_system=None),
    )
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    for arm in ARMS:
        row = next(line for line in lines if line.startswith(arm))
        assert row.split()[-1] in ("-", "ok", "worse", "equivalent", "grid")
    assert any(line.startswith("nope") and "[+0.0741, +0.0845]" in line for line in lines)


def test_trials_never_enter_the_table(study: StudyFactory) -> None:
    study.tuned = True
    sweep = collect(study.whole())
    assert {run.role for run in sweep.runs} == {"report", "tuned"}
    assert len(sweep.trials) == len(ARMS) * len(GRID)
    assert {run.seed for row in build_table(sweep).rows for run in row.known} == {0, 1, 2, 3, 4}


def test_until_tuning_has_ended_arms_are_ranked_where_they_are_known(study: StudyFactory) -> None:
    study.tuned = True
    study.report()
    study.tune()
    study.chosen.clear()
    table = table_of(study.plan())
    assert headline(table).startswith("UNFINISHED: 25 of 50 runs finished")
    assert table.rows[0].arm == "baseline"
    assert cells(table, "nope")["val loss at own best"] == "-"
    assert "Tuning of optimizer.lr is UNFINISHED: 15 of 15 trials so far." in notes(table)


def test_unequal_tuning_budgets_are_warned_about(study: StudyFactory) -> None:
    study.tuned = True
    study.whole()
    study.add("nope", 100, "tune", 3e-2)
    lines = notes(table_of(study.plan()))
    assert any("did not get the same number of tuning trials" in line for line in lines)


def test_a_control_is_tuned_like_every_arm(study: StudyFactory) -> None:
    study.tuned = True
    study.arms["a/a"] = []
    study.controls = ("a/a",)
    table = table_of(study.whole())
    assert verdicts(table)["a/a"] == "identical"
    own = "val loss at own best"
    assert cells(table, "a/a")[own] == cells(table, "baseline")[own] != "-"


def test_another_baseline_makes_the_contrasts_exploratory(study: StudyFactory) -> None:
    table = table_of(study.whole(), "silu")
    assert {item.reference for item in table.comparisons} == {"silu"}
    assert set(verdicts(table).values()) == {"exploratory"}
    nope = row_of(table, "nope").difference
    assert nope and nope.p and nope.adjusted_p
    # Ten pairs of five arms, of which two have a smaller p at most.
    assert 8 * nope.p <= nope.adjusted_p <= 10 * nope.p
    assert "adjusted after Holm over all 10 pairs of arms" in " ".join(notes(table))
    assert not any("xploratory" in line for line in notes(table_of(study.root)))


def test_a_baseline_chosen_after_an_undeclared_sweep_is_exploratory(sweep: SweepFactory) -> None:
    for arm, loss in (("base", 3.1), ("mid", 3.2), ("best", 3.0), ("broken", 3.0)):
        sweep.done(arm, {seed: loss + seed / 10 + loss * seed**2 / 99 for seed in range(3)})
    sweep.run("broken", 3, result=failed("broken", 3, "E", "x"))
    root = sweep.plan()
    table = table_of(root, "mid")
    assert verdicts(table) == {
        "base": "exploratory",
        "best": "exploratory",
        "broken": "fails 1 of 4",
    }
    assert (cells(table, "best")["verdict"], table.plan.family) == ("exploratory", 6)
    assert any("'mid' was chosen in place of 'base'" in line for line in notes(table))
    best = row_of(table, "best").difference
    assert best and best.p and best.adjusted_p == pytest.approx(6 * best.p)
    assert verdicts(table_of(root, "base")) == verdicts(table_of(root))
    assert verdicts(table_of(root))["mid"] == "worse"


def test_an_undeclared_sweep_gets_the_same_statistics(sweep: SweepFactory) -> None:
    sweep.done("base", {0: 3.10, 1: 3.20, 2: 3.30})
    sweep.done("new", {0: 3.00, 1: 3.11, 2: 3.20})
    table = table_of(sweep.plan())
    assert verdicts(table) == {"new": "better"}
    assert table.plan.margin is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"baseline": "x"}, "'x'"),
        ({"contrasts": [["a", "b"]]}, "'a'"),
        ({"arms": None}, "study.arms"),
        ({"tune": {"key": "optimizer.lr"}}, "study.tune.grid"),
        ({"primary": "speed"}, "study.primary=speed"),
    ],
)
def test_a_damaged_study_block_is_named(
    study: StudyFactory, change: dict[str, object], told: str
) -> None:
    root = study.whole()
    plan = json.loads((root / "sweep.json").read_text())
    plan["study"] |= change
    (root / "sweep.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match=told):
        collect(root)


def test_an_unknown_role_is_named(study: StudyFactory) -> None:
    root = study.whole()
    text = (root / "sweep.json").read_text()
    (root / "sweep.json").write_text(text.replace('"role": "report"', '"role": "rehearsal"'))
    with pytest.raises(InputError, match="role=rehearsal"):
        collect(root)


def test_a_study_written_twice_gives_the_same_bytes(study: StudyFactory) -> None:
    study.tuned = study.curves = True
    study.seeds = (0, 1, 2)
    root = study.whole()
    first = {path: path.read_bytes() for path in write_report(root).files}
    # The page also shows the ledger, to which each of them adds a look.
    assert first.pop(root / "report.html")
    assert {path.suffix for path in first} == {".md", ".csv", ".json", ".tex", ".png"}
    write_report(root)
    assert {path: path.read_bytes() for path in first} == first
    runs = (root / "table.md").read_text().partition("Runs:")[2]
    assert "nope-lr0.01-s0-" in runs


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0004, "<0.001"), (0.0123, "0.012"), (0.04996, "0.0500"), (0.0502, "0.0502")],
)
def test_p_values_do_not_blur_the_level(value: float | None, text: str) -> None:
    assert p_text(value) == text
