"""The data frame: stable names, sane types, and nothing averaged that should not be."""

from __future__ import annotations

import math

import pytest
from synthetic_runs import SweepFactory, failed, grid, history, result_of
from synthetic_studies import StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import load


def test_one_row_per_run_with_identity_settings_and_results(study: StudyFactory) -> None:
    study.tuned = True
    frame = load(study.whole()).frame()
    assert len(frame) == len(study.entries) == 25 + 15 + 25
    assert list(frame.columns[:5]) == ["sweep", "arm", "seed", "role", "directory"]
    assert frame["role"].value_counts().to_dict() == {"report": 25, "tuned": 25, "tune": 15}
    tuned = frame[(frame.arm == "nope") & (frame.role == "tuned")]
    assert set(tuned["setting.optimizer.lr"]) == {0.01}
    assert set(frame["parameters.total"]) == {4213760.0}


def test_types_do_not_depend_on_what_failed(sweep: SweepFactory) -> None:
    sweep.run("a", result=result_of("a", 0, 3.0))
    sweep.run("b", result=failed("b", 0, "E", "boom"))
    sweep.run("c", result=result_of("c", 0, math.nan, outcome="non-finite"))
    sweep.run("d", exists=False)
    frame = load(sweep.plan()).frame().set_index("arm")
    assert frame["val_loss"].dtype == frame["steps"].dtype == "float64"
    assert frame["seed"].dtype == "int64"
    assert frame["val_loss"].isna().to_dict() == {"a": False, "b": True, "c": True, "d": True}
    assert frame["usable"].to_dict() == {"a": True, "b": False, "c": False, "d": False}
    assert frame.loc["b", "error.message"] == "boom"
    assert "error" not in frame.columns
    assert frame["status"].to_dict()["d"] == "waiting"


def test_names_are_the_same_before_any_run_has_ended(sweep: SweepFactory) -> None:
    sweep.run("a", exists=False)
    waiting = set(load(sweep.plan()).frame().columns)
    assert {"val_loss", "bits_per_byte", "parameters.total", "outcome", "commit"} <= waiting
    sweep.planned.clear()
    sweep.done("a", {0: 3.0})
    assert waiting <= set(load(sweep.plan()).frame().columns)


def test_axes_are_columns(sweep: SweepFactory) -> None:
    grid(sweep, 1)
    frame = load(sweep.plan("placement", "ffn", "position")).frame()
    means = frame.groupby("axis.placement")["val_loss"].mean()
    assert means["pre"] < means["post"]


def test_numeric_axes_are_numbers(sweep: SweepFactory) -> None:
    for rate in ("0.001", "3e-3"):
        sweep.run(rate, result=result_of(rate, 0, 3.0), overrides=(f"optimizer.lr={rate}",))
    assert list(load(sweep.plan("optimizer.lr")).frame()["axis.optimizer.lr"]) == [0.001, 0.003]


def test_curves_are_long_and_keep_the_later_of_a_repeated_step(sweep: SweepFactory) -> None:
    rows = [*history(3.0, 0)[:2], {"step": 50, "val/loss": 4.0, "tokens": 7}]
    rows += [{"step": 75, "train/loss": "nan"}, {"train/loss": 1.0}]
    sweep.run("a", result=result_of("a", 0, 3.0), metrics=rows)
    sweep.run("b", exists=False)
    frame = load(sweep.plan()).frame(curves=True)
    assert list(frame.columns[-3:]) == ["step", "metric", "value"]
    assert list(frame["step"]) == [25, 50, 50, 75]
    values = frame.set_index(["step", "metric"])["value"]
    assert values[50, "val/loss"] == 4.0
    assert math.isnan(values[75, "train/loss"])


def test_no_curves_are_an_empty_frame_with_the_same_columns(sweep: SweepFactory) -> None:
    sweep.run("a", exists=False)
    frame = load(sweep.plan()).frame(curves=True)
    assert frame.empty
    assert "metric" in frame.columns


def test_a_missing_folder_is_an_error(sweep: SweepFactory) -> None:
    with pytest.raises(InputError, match="no folder"):
        load(sweep.root / "absent")
