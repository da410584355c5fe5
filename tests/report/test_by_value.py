"""The loss by a swept number."""

from __future__ import annotations

import math

import pytest
from figure_contents import marked, outside, points
from matplotlib.figure import Figure
from synthetic_runs import SweepFactory, result_of

from lm_experiments.report import build_table, collect
from lm_experiments.report.pictures.by_value import draw_by_value, lines_of, numeric_axis


def swept(sweep: SweepFactory, values: list[float], norms: tuple[str, ...] = ()) -> None:
    for value in values:
        for norm in norms or ("",):
            arm = f"{value:g} {norm}".strip()
            overrides = [f"optimizer.lr={value:g}", *([f"norm={norm}"] if norm else [])]
            loss = 3 + (math.log10(value) + 2.5) ** 2 / 10
            sweep.run(arm, result=result_of(arm, 0, loss), overrides=overrides)


def test_a_number_with_many_values_is_an_axis(sweep: SweepFactory, figures: list[Figure]) -> None:
    values = [10 ** (-4 + i / 10) for i in range(41)]
    swept(sweep, values[:-1])
    dead = result_of("1", 0, math.nan, outcome="diverged")
    sweep.run("1", result=dead, overrides=["optimizer.lr=1"])
    table = build_table(collect(sweep.plan("optimizer.lr")))
    assert draw_by_value(table, sweep.root / "by_value.png")
    [axes] = figures[0].axes
    assert axes.get_xscale() == "log"
    [curve] = [points(line) for line in axes.lines if line.get_marker() == "o"]
    assert [x for x, _ in curve] == pytest.approx(values[:-1], rel=1e-4)
    assert [x for x, _ in marked(axes, "x")] == [1.0]
    assert "cross: failed" in axes.get_xlabel()
    assert outside(figures[0]) == []


def test_each_choice_of_the_others_is_a_line(sweep: SweepFactory) -> None:
    swept(sweep, [1e-4, 3e-4, 1e-3, 3e-3, 1e-2], ("rmsnorm", "layernorm"))
    table = build_table(collect(sweep.plan("optimizer.lr", "norm")))
    assert numeric_axis(table) == 0
    lines = lines_of(table, 0)
    assert [line.label for line in lines] == ["rmsnorm", "layernorm"]
    assert [len(line.points) for line in lines] == [5, 5]


def test_few_values_and_words_are_no_axis(sweep: SweepFactory) -> None:
    swept(sweep, [1e-4, 3e-4, 1e-3, 3e-3], ("rmsnorm",))
    table = build_table(collect(sweep.plan("optimizer.lr", "norm")))
    assert numeric_axis(table) is None
    assert not draw_by_value(table, sweep.root / "by_value.png")
