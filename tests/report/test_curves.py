"""The curves: what is averaged, how labels are kept apart, and how lines are told apart."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
from figure_contents import marked, outside, overlapping, points, texts, words
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from synthetic_runs import SweepFactory, grid, history, result_of

from lm_experiments.report import build_table, collect, write_report
from lm_experiments.report.pictures.curves import (
    arm_curve,
    draw_curves,
    focus,
    labelled,
    scales_of,
    spread,
    usual_axis,
)
from lm_experiments.report.pictures.figure import level_key, line_styles
from lm_experiments.report.pictures.paper import shrink
from lm_experiments.report.style import STEPS, TOKENS, Style


def rows_of(*losses: float | str) -> list[dict[str, Any]]:
    """Validation rows at steps 10, 20, ... with these losses."""
    return [{"step": 10 * (i + 1), "val/loss": loss} for i, loss in enumerate(losses)]


def test_a_curve_is_the_mean_at_common_finite_steps(sweep: SweepFactory) -> None:
    again = [*rows_of(5.0, 4.0, "nan"), {"step": 20, "val/loss": 4.2}, {"step": 40, "x": 1}]
    sweep.run("a", 0, result=result_of("a", 0, 4.2), metrics=again)
    sweep.run("a", 1, result=result_of("a", 1, 4.4), metrics=rows_of(5.2, 4.4, 4.0))
    bad = result_of("a", 2, math.nan, outcome="diverged")
    sweep.run("a", 2, result=bad, metrics=rows_of(9.0, 9.0))
    (row,) = build_table(collect(sweep.plan())).rows
    curve = arm_curve(row)
    assert curve is not None
    assert list(curve.x) == [10, 20]
    assert curve.mean == pytest.approx((5.1, 4.3))
    assert curve.sd == pytest.approx((0.02**0.5, 0.02**0.5))
    assert curve.label == "4.300  a (baseline)"


def test_an_arm_without_a_usable_run_is_labelled_so(sweep: SweepFactory) -> None:
    sweep.run("a", metrics=rows_of(5.0, 4.0))
    sweep.run("b", result=result_of("b", 0, math.nan), metrics=rows_of(5.0, 8.0, "inf"))
    rows = build_table(collect(sweep.plan())).rows
    labels = [curve.label for row in rows if (curve := arm_curve(row)) is not None]
    assert labels == ["4.000  a (interrupted, baseline)", "8.000  b (non-finite)"]


def test_tokens_are_the_axis_only_when_steps_differ_in_size(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.0})
    assert usual_axis(collect(sweep.plan()).runs) == STEPS
    sweep.run("b", result=result_of("b", 0, 3.0, steps=500), metrics=rows_of(4.0))
    table = build_table(collect(sweep.plan()))
    assert usual_axis(table.sweep.runs) == TOKENS
    scales = scales_of(table.sweep.runs, TOKENS)
    assert scales is not None
    assert sorted(scales.values()) == [4096, 8192]
    curve = arm_curve(next(row for row in table.rows if row.arm == "b"), scales)
    assert curve is not None
    assert list(curve.x) == [81920]


def test_the_picture_says_what_its_curves_are_measured_on(
    sweep: SweepFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    labels: list[str] = []
    monkeypatch.setattr(Axes, "set_ylabel", lambda axes, text, **_: labels.append(text))
    rows = rows_of(4.0, 3.0)
    for seed, part in enumerate((None, 40960, 8192)):
        sweep.run("a", seed, result=result_of("a", seed, 3.0, curve_tokens=part), metrics=rows)
        draw_curves(build_table(collect(sweep.plan())), tmp_path / "curves.png")
    assert labels[0] == labels[1] == "validation loss (nats per token)"
    assert labels[2].endswith("token; curves on 8,192 of 40,960 tokens, labels on all)")


def test_limits_hold_what_follows_the_drop_and_ignore_divergence(sweep: SweepFactory) -> None:
    sweep.run("a", result=result_of("a", 0, 3.0), metrics=rows_of(8.0, 4.0, 3.5, 3.2, 3.0))
    bad = result_of("b", 0, math.nan, outcome="diverged")
    sweep.run("b", result=bad, metrics=rows_of(8.0, 7.0, 90.0, 90.0, 90.0))
    rows = build_table(collect(sweep.plan())).rows
    curves = [curve for row in rows if (curve := arm_curve(row)) is not None]
    (left, right), (low, high) = focus(curves)
    assert (left, right) == (12.5, 50)
    assert low < 3.0 < 4.0 < high < 4.1


def test_spread_keeps_order_gap_and_limits() -> None:
    placed = spread([0.0, 0.01, 0.02, 0.5, 0.98, 0.99], 0.1, 0.0, 1.0)
    assert all(b - a >= 0.1 - 1e-12 for a, b in itertools.pairwise(placed))
    assert min(placed) >= 0.0
    assert max(placed) <= 1.0 + 1e-12
    assert placed[3] == pytest.approx(0.5)


def test_spread_moves_nothing_that_has_room() -> None:
    assert spread([0.1, 0.5, 0.9], 0.1, 0.0, 1.0) == pytest.approx([0.1, 0.5, 0.9])


def test_spread_of_more_labels_than_fit_closes_the_gap() -> None:
    placed = spread([0.5] * 21, 0.1, 0.0, 1.0)
    assert placed == pytest.approx([i / 20 for i in range(21)])


def test_axes_give_colour_dashes_and_marker(sweep: SweepFactory) -> None:
    grid(sweep, 1)
    table = build_table(collect(sweep.plan("placement", "ffn", "position")))
    styles = line_styles(table)
    assert len(set(styles.values())) == 12
    pre, post = styles["pre relu rope"], styles["post relu rope"]
    assert (pre.color, pre.dashes) == (post.color, post.dashes)
    assert pre.marker != post.marker
    assert styles["pre swiglu rope"].dashes != pre.dashes
    assert styles["pre relu none"].color != pre.color
    key = [handle.get_label() for handle in level_key(table)]
    assert key[:3] == ["placement pre", "placement post", "ffn relu"]
    assert len(key) == 7


def test_without_axes_the_arms_still_look_different(sweep: SweepFactory) -> None:
    for i in range(12):
        sweep.done(f"arm {i}", {0: 3.0})
    table = build_table(collect(sweep.plan()))
    assert len(set(line_styles(table).values())) == 12
    assert level_key(table) == []


@pytest.mark.parametrize("arms", [1, 2, 40])
def test_pictures_of_few_and_many_arms(
    sweep: SweepFactory, figures: list[Figure], arms: int
) -> None:
    for i in range(arms):
        loss = 3.0 + i / 100
        name = f"arm $x_{i}"
        sweep.run(name, result=result_of(name, 0, loss), metrics=history(loss, 0, every=250))
    path = sweep.root / "curves.png"
    table = build_table(collect(sweep.plan()))
    assert draw_curves(table, path)
    assert b"Software" not in path.read_bytes()[:200]
    [axes] = figures[0].axes
    curves = [curve for row in table.rows if (curve := arm_curve(row)) is not None]
    expected = [list(zip(curve.x, curve.mean, strict=True)) for curve in curves]
    # Lines that lead to labels have two points.
    assert sorted(p for line in axes.lines if len(p := points(line)) > 2) == sorted(expected)
    labels = [text for text in texts(figures[0]) if "arm $x_" in text.get_text()]
    assert {label.get_text() for label in labels} == {curve.label for curve in labelled(curves)}
    assert not any(label.get_parse_math() for label in labels), "a dollar sign is one"
    assert outside(figures[0]) == []
    assert overlapping(labels) == []
    grey = "Grey: the 16 arms between those that are named."
    assert (grey in words(figures[0])) == (arms == 40)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("step", [0, 10])
def test_a_single_validation_can_be_drawn(
    sweep: SweepFactory, figures: list[Figure], step: int
) -> None:
    sweep.run("a", metrics=[{"step": step, "val/loss": 4.0}])
    assert draw_curves(build_table(collect(sweep.plan())), sweep.root / "curves.png")
    [axes] = figures[0].axes
    assert marked(axes, "o") == [(step, 4.0)]
    low, high = axes.get_ylim()
    assert low < 4.0 < high


def test_nothing_to_draw_leaves_no_picture(sweep: SweepFactory) -> None:
    sweep.run("a", metrics=rows_of("nan"))
    stale = sweep.root / "curves.png"
    stale.touch()
    report = write_report(sweep.plan())
    assert [path.suffix for path in report.files] == [".md", ".csv", ".json", ".tex", ".html"]
    assert not stale.exists()
    assert "curves.png" not in Path(sweep.root / "table.md").read_text()


def test_history_skips_rows_that_are_not_numbers(sweep: SweepFactory) -> None:
    rows: list[dict[str, Any]] = [
        {"step": "ten", "val/loss": 4.0},
        {"val/loss": 4.0},
        {"step": 5, "val/loss": math.inf},
    ]
    sweep.run("a", metrics=[*rows, {"step": 6, "val/loss": None}])
    (row,) = build_table(collect(sweep.plan())).rows
    assert arm_curve(row) is None


def test_of_many_arms_the_extremes_and_the_baseline_are_labelled(sweep: SweepFactory) -> None:
    for i in range(40):
        sweep.run(f"arm {i}", result=result_of(f"arm {i}", 0, 3.0 + i), metrics=rows_of(3.0 + i))
    rows = build_table(collect(sweep.plan()), "arm 20").rows
    curves = [curve for row in rows if (curve := arm_curve(row)) is not None]
    arms = [int(curve.row.arm.split()[1]) for curve in labelled(curves)]
    assert arms == [*range(12), 20, *range(28, 40)]


def test_an_arm_without_a_line_is_named(sweep: SweepFactory, figures: list[Figure]) -> None:
    sweep.run("a", result=result_of("a", 0, 3.0), metrics=rows_of(4.0, 3.0))
    bad = result_of("b", 0, math.nan, outcome="failed-at-init")
    sweep.run("b", result=bad, metrics=rows_of("nan"))
    assert draw_curves(build_table(collect(sweep.plan())), sweep.root / "curves.png")
    assert "Without a line: b (failed-at-init)." in words(figures[0])
    assert outside(figures[0]) == []


def test_no_label_is_cut(sweep: SweepFactory, figures: list[Figure]) -> None:
    names = [f"arm {i} " + "with a long name " * 5 + "(ours)" for i in range(24)]
    for i, name in enumerate(names):
        sweep.run(name, result=result_of(name, 0, 3.0 + i / 1000), metrics=rows_of(4.0, 3.0))
    assert draw_curves(build_table(collect(sweep.plan())), sweep.root / "curves.png")
    labels = [text for text in texts(figures[0]) if "(ours)" in text.get_text()]
    shown = [" ".join(text.get_text().split()) for text in labels]
    assert f"3.000 {names[0]} (baseline)" in shown
    assert sorted(text.partition(" ")[2].removesuffix(" (baseline)") for text in shown) == sorted(
        names
    )
    assert outside(figures[0]) == []
    boxes = sorted((text.get_window_extent() for text in labels), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 + 1 for below, above in itertools.pairwise(boxes))


def test_curves_against_flops(sweep: SweepFactory, figures: list[Figure]) -> None:
    for arm, flops in (("a", 1e15), ("b", 4e15)):
        result = result_of(arm, 0, 3.0, train_flops=int(flops), steps=100)
        sweep.run(arm, result=result, metrics=rows_of(4.0, 3.0, 3.0))
    table = build_table(collect(sweep.plan()))
    assert draw_curves(table, sweep.root / "curves.png", "flops")
    [axes] = figures[0].axes
    drawn = [points(line) for line in axes.lines if len(points(line)) > 2]
    assert sorted(x for x, _ in max(drawn)) == [4e14, 8e14, 12e14]
    assert axes.get_xlabel().startswith("training FLOPs")


def test_pictures_for_paper_are_a_page_wide_with_their_fonts(sweep: SweepFactory) -> None:
    sweep.run("a", result=result_of("a", 0, 3.0), metrics=rows_of(4.0, 3.0))
    folder, style = sweep.plan(), Style(paper=True)
    written = {path.name: path for path in write_report(folder, style=style).files}
    pdf = written["curves.pdf"].read_bytes()
    [box] = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", pdf)
    assert float(box) == pytest.approx(6.9 * 72)
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    assert b'width="496.8pt"' in written["curves.svg"].read_bytes()
    assert "curves.pdf" not in (folder / "table.md").read_text()
    again = {path.name: path.read_bytes() for path in write_report(folder, style=style).files}
    assert again["curves.pdf"] == pdf
    # What is on paper is not left to contradict a newer table.
    write_report(folder)
    assert not list(folder.glob("*.pdf"))


def test_a_figure_is_shrunk_with_all_that_is_on_it() -> None:
    figure = Figure(figsize=(10, 6))
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    [line] = axes.plot([0, 1], [0, 1], "o", linewidth=2.0, markersize=6.0)
    note = axes.annotate("x", (0, 0), xytext=(8, -4), textcoords="offset points", size=9)
    band = axes.fill_between([0, 1], [0, 1], [1, 2], linewidth=3.0)
    tick = axes.get_xticklabels()[0].get_fontsize()
    shrink(figure, 0.5)
    assert tuple(figure.get_size_inches()) == (5, 3)
    assert (line.get_linewidth(), line.get_markersize()) == (1.0, 3.0)
    assert (note.get_fontsize(), note.xyann) == (4.5, (4, -2))
    assert list(band.get_linewidth()) == [1.5]
    assert axes.get_xticklabels()[0].get_fontsize() == float(tick) / 2
