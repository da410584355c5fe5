"""The pictures of a study: what is drawn, what keeps its place, and what stays in the panel."""

from __future__ import annotations

import math

import pytest
from synthetic_runs import SweepFactory
from synthetic_studies import StudyFactory

from lm_experiments.report import build_table, collect, write_report
from lm_experiments.report.pictures.drawing import nearest
from lm_experiments.report.pictures.forest import draw_forest, limits, ordered
from lm_experiments.report.pictures.sensitivity import draw_sensitivity, focus, responses
from lm_experiments.report.statistics.contrasts import contrast

PNG = b"\x89PNG"


def test_forest_of_a_study_with_a_dead_arm_and_a_control(study: StudyFactory) -> None:
    study.arms["a/a"] = []
    study.controls = ("a/a",)
    nan = {"outcome": "non-finite", "val_loss": math.nan}
    study.broken |= {("no norm", seed): nan for seed in study.seeds}
    table = build_table(collect(study.whole()))
    assert [item.arm for item in ordered(table)][-1] == "no norm"
    path = study.root / "forest.png"
    assert draw_forest(table, path)
    assert path.read_bytes().startswith(PNG)


def test_forest_needs_an_interval(sweep: SweepFactory) -> None:
    sweep.done("a", {0: 3.0})
    sweep.done("b", {0: 3.1})
    stale = sweep.root / "forest.png"
    stale.write_bytes(PNG)
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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("chosen", [True, False])
def test_sensitivity_is_drawn_only_with_trials(study: StudyFactory, chosen: bool) -> None:
    study.tuned = True
    study.broken["no norm", 100] = {"outcome": "diverged", "val_loss": 9.0}
    study.report()
    path = study.root / "sensitivity.png"
    assert not draw_sensitivity(build_table(collect(study.plan())), path)
    study.tune()
    if not chosen:
        study.chosen.clear()
    assert draw_sensitivity(build_table(collect(study.plan())), path)
    assert path.read_bytes().startswith(PNG)


def test_curves_before_tuning_has_ended_are_those_at_the_common_setting(
    study: StudyFactory,
) -> None:
    study.tuned = study.curves = True
    study.seeds = (0, 1)
    study.report()
    names = [path.name for path in write_report(study.plan()).files]
    assert "curves.png" in names
    assert "forest.png" not in names
