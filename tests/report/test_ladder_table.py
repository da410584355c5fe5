"""What a table says of a ladder: its section in every format, verdicts, notes, and the picture."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from figure_contents import marked, outside, words
from matplotlib.figure import Figure
from rich.console import Console
from synthetic_ladders import BASELINE, FLOPS_PER_TOKEN, SILU, STEPS, TOKENS_PER_STEP, climbing
from synthetic_studies import GRID, StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import Table, build_table, collect, load
from lm_experiments.report.look import keep_look
from lm_experiments.report.page import page_html
from lm_experiments.report.page.words import answer
from lm_experiments.report.pictures.ladder import draw_ladder
from lm_experiments.report.statistics.ladder import LadderFindings
from lm_experiments.report.statistics.trend import slope_weights
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.ladder import HEADING, ladder_cells, ladder_notes
from lm_experiments.report.table.latex import latex
from lm_experiments.report.table.markdown import markdown
from lm_experiments.report.table.notes import notes
from lm_experiments.report.table.terminal import show_table
from lm_experiments.report.table.warnings import warnings
from lm_experiments.rundir.ledger import LOOK

COMPUTE = [float(FLOPS_PER_TOKEN * TOKENS_PER_STEP * steps) for steps in STEPS]
# The loss of each rate of the grid, by tuning seed.
TRIALS = ((3.00, 3.02, 3.10), (3.03, 3.00, 3.10), (3.02, 3.01, 3.10))
EFFECTS = {"SiLU": SILU, "GELU": (0.05, 0.05, 0.05)}


@pytest.fixture
def ladder(study: StudyFactory) -> StudyFactory:
    """A ladder of three arms at three budgets, three seeds, no run written yet."""
    study.seeds = (0, 1, 2)
    return climbing(study, EFFECTS, noise=0.001)


def said(table: Table) -> LadderFindings:
    assert table.ladder is not None
    return table.ladder


def lasting(table: Table) -> dict[str, str]:
    return {item.arm: item.verdict for item in said(table).contrasts}


def test_the_verdicts_and_slopes_of_known_effects(ladder: StudyFactory) -> None:
    found = said(build_table(collect(ladder.whole())))
    assert {item.arm: item.verdict for item in found.contrasts} == {
        "SiLU": "shrinks",
        "GELU": "holds",
    }
    assert list(found.compute) == COMPUTE
    silu = found.contrasts[0]
    assert silu.trend is not None and silu.trend.slope.low is not None
    assert silu.trend.slope.mean == pytest.approx(-0.051, abs=0.002)
    assert [rung.arm for rung in silu.rungs] == [f"SiLU at {steps} steps" for steps in STEPS]
    assert [rung.contrast.mean for rung in silu.rungs if rung.contrast] == pytest.approx(
        SILU, abs=0.003
    )


def test_every_format_has_the_section(ladder: StudyFactory) -> None:
    table = build_table(collect(ladder.whole()))
    out = io.StringIO()
    show_table(table, Console(file=out, width=190, force_terminal=True, color_system=None))
    paper = latex(table).replace(r"\textless{}", "<").translate(dict.fromkeys(map(ord, "${}")))
    page = page_html(table).replace("&lt;", "<")
    for item in said(table).contrasts:
        for text in (markdown(table).replace("&lt;", "<"), out.getvalue(), paper, page):
            assert all(cell in text for cell in ladder_cells(item))
    for text in (markdown(table), out.getvalue(), page):
        assert HEADING in text
    content = json.loads(json_text(table))["ladder"]
    assert [item["verdict"] for item in content["contrasts"]] == ["shrinks", "holds"]
    assert [rung["label"] for rung in content["rungs"]] == [f"{steps} steps" for steps in STEPS]
    assert content["contrasts"][0]["slope"]["low"] < -0.04
    assert content["notes"] == ladder_notes(table)


def test_a_narrow_terminal_breaks_the_section_and_cuts_no_number(ladder: StudyFactory) -> None:
    table = build_table(collect(ladder.whole()))
    out = io.StringIO()
    show_table(table, Console(file=out, width=100, force_terminal=True, color_system=None))
    assert max(map(len, out.getvalue().splitlines())) <= 100
    section = out.getvalue().partition(HEADING)[2]
    assert all(part in section for part in " ".join(ladder_cells(said(table).contrasts[0])).split())


def test_the_records_of_a_contrast_have_its_trend_at_every_rung(ladder: StudyFactory) -> None:
    table = build_table(collect(ladder.whole()))
    records = {row["arm"]: row for row in csv.DictReader(io.StringIO(csv_text(table)))}
    silu = [records[f"SiLU at {steps} steps"] for steps in STEPS]
    assert [row["rung"] for row in silu] == [f"{steps} steps" for steps in STEPS]
    assert {row["lasts"] for row in silu} == {"shrinks"}
    assert float(silu[0]["slope_high_95"]) < -0.04
    assert records[f"{BASELINE} at 75 steps"]["lasts"] == ""


def test_a_study_without_a_ladder_says_nothing_of_one(study: StudyFactory) -> None:
    table = build_table(collect(study.whole()))
    assert table.ladder is None and draw_ladder(table) is None
    assert HEADING not in markdown(table) and "ladder" not in json.loads(json_text(table))
    assert "rung" not in csv_text(table).partition("\n")[0]
    with pytest.raises(InputError, match="needs a study with ladder:"):
        load(study.root).ladder()


def test_a_failed_run_at_one_rung_leaves_no_verdict(ladder: StudyFactory) -> None:
    ladder.broken["GELU at 300 steps", 1] = {"outcome": "diverged"}
    table = build_table(collect(ladder.whole()))
    assert lasting(table) == {"SiLU": "shrinks", "GELU": "fails 1 of 3 at 300 steps"}
    gelu = said(table).contrasts[1].trend
    assert gelu is not None and gelu.slope.p is None and gelu.slope.n == 2
    # It still counts in the family.
    silu = said(table).contrasts[0].trend
    assert silu is not None and silu.slope.p is not None
    assert silu.slope.adjusted_p == pytest.approx(2 * silu.slope.p)


def test_there_is_no_verdict_halfway_or_with_two_seeds(ladder: StudyFactory) -> None:
    ladder.report()
    ladder.entries.pop()
    ladder.add("GELU at 900 steps", 2, "report", exists=False)
    (ladder.root / ladder.entries[-1].directory).rename(ladder.root.parent / "aside")
    found = said(build_table(collect(ladder.plan())))
    assert {item.verdict for item in found.contrasts} == {"unfinished"}
    assert all(i.trend is None or i.trend.slope.adjusted_p is None for i in found.contrasts)


def test_two_seeds_are_exploratory(study: StudyFactory) -> None:
    study.seeds = (0, 1)
    table = build_table(collect(climbing(study, EFFECTS).whole()))
    assert set(lasting(table).values()) == {"exploratory, n = 2"}


def test_a_ladder_that_grew_after_p_values_were_shown_is_exploratory(ladder: StudyFactory) -> None:
    table = build_table(collect(ladder.whole()))
    assert table.tested
    keep_look(table)
    ladder.seeds = (0, 1, 2, 3)
    ladder.entries = []
    climbing(ladder, EFFECTS, noise=0.001)
    assert set(lasting(build_table(collect(ladder.whole()))).values()) == {"exploratory"}


def test_the_notes_say_how_the_rate_was_set_and_what_the_rungs_are(ladder: StudyFactory) -> None:
    notes = " ".join(ladder_notes(build_table(collect(ladder.whole()))))
    assert "The learning rate is the same at all rungs" in notes
    assert "75 steps (640k parameters, 76.8k tokens, 307G FLOPs)" in notes
    assert "nothing is extrapolated" in notes


def test_budgets_that_differ_by_rung_are_no_warning_and_others_are(ladder: StudyFactory) -> None:
    assert not [line for line in warnings(build_table(collect(ladder.whole()))) if "tokens" in line]
    ladder.root, ladder.entries = ladder.root.with_name("odd"), []
    ladder.changes["GELU at 300 steps", 0]["tokens"] = 1
    with pytest.raises(InputError, match="tokens"):
        build_table(collect(ladder.whole()))
    mixed = build_table(collect(ladder.root), allow_mixed=True)
    assert any("differ in tokens" in line for line in warnings(mixed))


def test_the_noise_of_choices_at_each_rung_widens_the_slope(study: StudyFactory) -> None:
    study.seeds, study.tuned, study.tuning_seeds = (0, 1, 2), True, (100, 101, 102)
    climbing(study, {"SiLU": SILU}, noise=0.001)
    study.losses = {cell: loss for cell, loss in study.losses.items() if cell[1] < 100}
    # Another draw of the tuning seeds might choose another rate.
    for label in study.arms:
        for seed, losses in zip(study.tuning_seeds, TRIALS, strict=True):
            study.trials |= {(label, seed, r): v for r, v in zip(GRID, losses, strict=True)}
    table = build_table(collect(study.whole()))
    [item] = said(table).contrasts
    assert item.trend is not None and item.trend.slope.sd is not None
    tuned = {row.arm: row.tuned for row in table.rows}
    choices = 0.0
    for weight, rung in zip(slope_weights(COMPUTE), item.rungs, strict=True):
        for arm in (rung.arm, rung.reference):
            side = tuned[arm]
            assert side is not None and side.noise is not None and side.noise.variance > 0
            choices += weight**2 * side.noise.variance
    assert item.trend.slope.error == pytest.approx((item.trend.slope.sd**2 / 3 + choices) ** 0.5)
    assert "tuned for each arm at each rung" in " ".join(ladder_notes(table))


def test_ranks_are_compared_between_rungs(study: StudyFactory) -> None:
    study.seeds = (0, 1, 2)
    effects = {"a": (0.1, 0.1, -0.2), "b": (0.2, 0.2, -0.1)}
    table = build_table(collect(climbing(study, effects, noise=0.001).whole()))
    found = said(table).agreement
    assert [(item.lower, item.upper, item.tau) for item in found] == [
        ("75 steps", "300 steps", 1.0),
        ("300 steps", "900 steps", pytest.approx(-1 / 3)),
        ("75 steps", "900 steps", pytest.approx(-1 / 3)),
    ]
    assert "75 steps to 300 steps +1.00 [+1.00, +1.00] over 3 seeds" in markdown(table)


def test_the_answer_compares_the_best_arm_with_its_own_rung(ladder: StudyFactory) -> None:
    climbing(ladder, {"SiLU": (-0.2, -0.2, -0.2), "GELU": (-0.1, -0.1, -0.1)}, noise=0.001)
    said = answer(build_table(collect(ladder.whole())))
    assert said.startswith("SiLU at 900 steps has the lowest val loss")
    assert said.endswith("Whether it is also better than GELU at 900 steps was not tested.")


def test_a_control_is_not_ranked(ladder: StudyFactory) -> None:
    climbing(ladder, {**EFFECTS, "again": (0.0, 0.0, 0.0)}, noise=0.001)
    ladder.controls = tuple(f"again at {steps} steps" for steps in STEPS)
    ladder.losses |= {
        (f"again at {steps} steps", seed): ladder.losses[f"{BASELINE} at {steps} steps", seed]
        for steps in STEPS
        for seed in ladder.seeds
    }
    [first, *_] = said(build_table(collect(ladder.whole()))).agreement
    assert first.arms == (BASELINE, "SiLU", "GELU")


@pytest.mark.parametrize(
    ("primary", "side"),
    [("val_loss", "below zero is a lower loss"), ("accuracy", "above zero is better")],
)
def test_a_ladder_says_on_which_side_is_better(
    ladder: StudyFactory, figures: list[Figure], tmp_path: Path, primary: str, side: str
) -> None:
    ladder.primary = primary
    for (arm, seed), loss in ladder.losses.items():
        ladder.changes[arm, seed]["accuracy"] = 1 - loss / 10
    table = build_table(collect(ladder.whole()))
    # By either measure the arms are worse, and one of them less and less so.
    assert lasting(table) == {"SiLU": "shrinks", "GELU": "holds"}
    assert {item.verdict for item in table.comparisons} == {"worse"}
    assert draw_ladder(table, tmp_path / "ladder.png")
    assert any(f"last? ({side})" in text for text in words(figures[0]))
    assert f"{side}. The slope" in ladder_notes(table)[0]
    page = page_html(table)
    assert f"at each rung; {side}." in page
    assert f"intervals; {side}. Left triangle" in page
    assert any(f"with its reference; {side}." in note for note in notes(table))


def test_another_baseline_has_no_ladder(ladder: StudyFactory) -> None:
    assert build_table(collect(ladder.whole()), f"{BASELINE} at 300 steps").ladder is None


def test_the_picture_has_every_difference_and_its_verdict(
    ladder: StudyFactory, figures: list[Figure], tmp_path: Path
) -> None:
    table = build_table(collect(ladder.whole()))
    assert draw_ladder(table, tmp_path / "ladder.png")
    [figure] = figures
    [axes] = figure.axes
    found = said(table)
    assert marked(axes, "o") == [
        (flops, rung.contrast.mean)
        for item in found.contrasts
        for flops, rung in zip(found.compute, item.rungs, strict=True)
        if rung.contrast and flops
    ]
    assert {"SiLU - SwiGLU: shrinks", "GELU - SwiGLU: holds"} <= set(words(figure))
    assert outside(figure) == []


def test_a_loaded_ladder_is_drawn_and_is_a_look(ladder: StudyFactory) -> None:
    loaded = load(ladder.whole())
    assert loaded.ladder().axes
    assert any(entry.event == LOOK for entry in collect(ladder.root).ledger)
    assert loaded.table().table.ladder is not None
