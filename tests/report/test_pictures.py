"""The pictures of a study: what is drawn, what keeps its place, and what stays in the panel."""

from __future__ import annotations

import math

import pytest
from figure_contents import marked, outside, points, texts, words
from matplotlib.figure import Figure
from synthetic_runs import SweepFactory
from synthetic_studies import StudyFactory

from lm_experiments.report import build_table, collect, write_report
from lm_experiments.report.pictures.figure import nearest, short_numbers
from lm_experiments.report.pictures.forest import draw_forest, ordered
from lm_experiments.report.pictures.intervals import BAND_WIDTH, limits
from lm_experiments.report.pictures.sensitivity import draw_sensitivity, focus, responses
from lm_experiments.report.statistics.contrasts import contrast


def test_forest_of_a_study_with_a_dead_arm_and_a_control(
    study: StudyFactory, figures: list[Figure]
) -> None:
    study.arms["a/a"] = []
    study.controls = ("a/a",)
    nan = {"outcome": "non-finite", "val_loss": math.nan}
    study.broken |= {("no norm", seed): nan for seed in study.seeds}
    table = build_table(collect(study.whole()))
    items = ordered(table)
    assert [item.arm for item in items][-1] == "no norm"
    assert draw_forest(table, study.root / "forest.png")
    [figure] = figures
    [axes] = figure.axes
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["a/a (control)", "layernorm", "silu", "nope", "no norm"]
    known = [(item.contrast, place) for place, item in enumerate(items) if item.contrast]
    assert marked(axes, "oD") == [(found.mean, place) for found, place in known]
    intervals = [points(line) for line in axes.lines if line.get_linewidth() == 1.8]
    assert intervals == [[(c.low, place), (c.high, place)] for c, place in known]
    assert [axes.lines[0].get_xdata()[0], len(axes.patches)] == [0.0, 1]
    assert [text for text in words(figure) if text == "fails 5 of 5"]
    assert {"identical", "equivalent", "worse", "margin 0.012"} <= set(words(figure))
    bands = [points(line) for line in axes.lines if line.get_linewidth() == BAND_WIDTH]
    within = [(c.within, place) for c, place in known if c.within and c.within.equivalent]
    assert bands == [[(w.low, place), (w.high, place)] for w, place in within] != []
    assert "broad bands: the interval that decides equivalence" in words(figure)
    assert outside(figure) == []


def test_forest_needs_an_interval(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.0})
    sweep.done("b", {0: 3.1})
    stale = sweep.root / "forest.png"
    stale.touch()
    write_report(sweep.plan())
    assert not stale.exists()


def test_limits_hold_zero_margin_and_all_but_the_far() -> None:
    base = {0: 3.0, 1: 3.1, 2: 3.2}
    arms = [{s: v + gap + s / 1000 for s, v in base.items()} for gap in (0.02, 0.03, 2.0)]
    found = [c for arm in arms if (c := contrast(arm, base)) is not None]
    low, high = limits(found, 0.05)
    assert -0.07 < low < -0.05
    assert 0.05 < high < 0.1


def test_nearest_leaves_out_what_lies_far_beyond_the_rest() -> None:
    assert nearest([0.1, 0.2, 0.3, 9.0], 4) == 0.3
    assert nearest([0.1, 0.2, 0.3, 0.9], 4) == 0.9
    assert nearest([0.0, 0.0, 5.0], 4) == 5.0
    assert nearest([1.0], 4) == 1.0
    assert nearest([0.001, 0.1, 0.2, 0.3], 4) == 0.3


def test_responses_hold_each_value_and_leave_out_failed_ones(study: StudyFactory) -> None:
    study.tuned = True
    study.root.mkdir()
    study.report()
    study.tune()
    study.broken["nope", 101] = {"outcome": "diverged", "val_loss": 9.0}
    for rate in (1e-3, 3e-2):
        study.add("nope", 101, "tune", rate)
    found = {r.arm: r for r in responses(build_table(collect(study.plan())))}
    assert list(found["silu"].losses) == [1e-3, 3e-3, 1e-2]
    assert [found["nope"].losses[rate] is None for rate in (1e-3, 3e-3, 3e-2)] == [
        True,
        False,
        True,
    ]
    assert sum(map(math.isinf, found["nope"].trials)) == 2
    assert found["nope"].label == "nope (0.01, edge)"
    low, high = focus(list(found.values()))
    assert low < 3.2 < 3.3 < high < 9


def test_forest_of_a_tuned_study_shows_the_common_setting_too(
    study: StudyFactory, figures: list[Figure]
) -> None:
    study.tuned = True
    study.root = study.root.with_name("norms_size-tiny_max_steps-10_val_fraction-0.005")
    table = build_table(collect(study.whole()))
    assert draw_forest(table, study.root / "forest.png")
    [axes] = figures[0].axes
    common = {row.arm: row.common.comparisons for row in table.rows if row.common}
    low, high = axes.get_xlim()
    means = [c.contrast.mean for item in ordered(table) for c in common[item.arm] if c.contrast]
    shown = [mean for mean in means if low <= mean <= high]
    assert [x for x, _ in marked(axes, "D")] == shown != []
    assert any(text.startswith("small diamonds: at lr 0.003") for text in words(figures[0]))
    assert outside(figures[0]) == []


def test_numbers_on_an_axis_are_short_and_told_apart() -> None:
    octaves = [2.0**-n for n in (11, 10, 9, 8, 7, 6, 5)]
    texts = ["0.000488", "0.000977", "0.00195", "0.00391", "0.00781", "0.0156", "0.0312"]
    assert short_numbers(octaves, 60) == texts
    assert short_numbers([0.001, 0.0010001], 60) == ["0.001", "0.0010001"]
    assert short_numbers([1.0, 2.0, 3.0, 4.0], 2) == ["1", "", "3", ""]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("chosen", [True, False])
def test_sensitivity_is_drawn_only_with_trials(
    study: StudyFactory, figures: list[Figure], chosen: bool
) -> None:
    study.tuned = True
    study.broken["silu", 100] = {"outcome": "diverged", "val_loss": 9.0}
    study.report()
    path = study.root / "sensitivity.png"
    assert not draw_sensitivity(build_table(collect(study.plan())), path)
    study.tune()
    if not chosen:
        study.chosen.clear()
    assert figures == []
    table = build_table(collect(study.plan()))
    assert draw_sensitivity(table, path)
    [figure] = figures
    panel, budget = figure.axes
    found = responses(table)
    drawn = [points(line) for line in panel.lines if line.get_linewidth() == 1.6]
    known = [list(r.losses.items()) for r in found if None not in r.losses.values()]
    assert [line for line in drawn if len(line) == 3] == known
    assert [x for x, _ in marked(panel, "x")] == [1e-3, 3e-3, 1e-2], "silu fails at every value"
    large = [p for line in panel.lines if line.get_markersize() == 9 for p in points(line)]
    best = [(r.choice.value, r.losses[r.choice.value]) for r in found if r.choice]
    assert large == [choice for choice in best if choice[1] is not None]
    assert bool(large) == chosen
    labels = {response.label for response in found}
    named = [text for text in texts(figure) if text.get_text() in labels]
    assert len(named) == len(found) == 5
    figure.canvas.draw()
    beside = budget.get_tightbbox()
    assert beside is not None
    assert all(text.get_window_extent().x1 < beside.x0 for text in named)
    assert len(budget.lines) == 4, "the best of k trials that all failed is not a point"
    assert outside(figure) == []


def test_curves_before_tuning_has_ended_are_those_at_the_common_setting(
    study: StudyFactory,
) -> None:
    study.tuned = study.curves = True
    study.seeds = (0, 1)
    study.report()
    names = [path.name for path in write_report(study.plan()).files]
    assert "curves.png" in names
    assert "forest.png" not in names
