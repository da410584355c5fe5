"""Losses on other contexts and texts: by arm, with paired intervals, in every format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic_studies
from matplotlib.figure import Figure
from rich.console import Console

from lm_experiments.report import Table, build_table, collect
from lm_experiments.report.page.figures import contexts
from lm_experiments.report.pictures.contexts import context_curves, draw_contexts, position_curves
from lm_experiments.report.statistics.contrasts import contrast
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.elsewhere import elsewhere_sections
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.latex import latex
from lm_experiments.report.table.markdown import markdown
from lm_experiments.report.table.terminal import show_table
from lm_experiments.rundir.evaluations import (
    CONTEXT,
    Asked,
    Evaluate,
    Evaluation,
    position_ends,
    write_evaluations,
)
from lm_experiments.rundir.study import Study

# At twice the trained context an arm's loss falls or rises by so much.
GAINS = {"baseline": -0.1, "nope": 0.3, "silu": -0.08}
ASKED = Evaluate([0.5, 1, 2], {"one": ["data=kjv"], "two": ["data=tinystories"]})
# What the arms lose on the two texts beyond the table: silu's sign is the table's on one of them.
TEXTS = {"one": {"silu": 0.02, "nope": 0.1}, "two": {"silu": -0.02, "nope": 0.1}}


class StudyFactory(synthetic_studies.StudyFactory):
    """A study that asks for evaluations."""

    evaluate: Evaluate | None = None

    def declared(self) -> Study:
        return replace(super().declared(), evaluate=self.evaluate)


@pytest.fixture
def study(tmp_path: Path) -> StudyFactory:
    return StudyFactory(tmp_path / "norms")


def evaluation(study: StudyFactory, asked: Asked, arm: str, seed: int) -> Evaluation:
    loss = study.loss(arm, seed)
    if asked.kind != CONTEXT:
        own = study.loss("baseline", seed) + TEXTS[asked.title].get(arm, 0.0)
        return Evaluation(128, 128, own, 100, own / 2)
    length = asked.tokens(128)
    if arm == "layernorm" and length > 128:
        return Evaluation(length, 128, refused="trained to 128")
    loss += {64: 0.05, 128: 0.0, 256: GAINS.get(arm, 0.0)}[length]
    ends = position_ends(128, length)
    # Of the positions up to 128 the second half is the last range, those beyond are the next.
    by_position = [float(end) for end in ends]
    whole = loss, 100, loss / 2
    return Evaluation(length, 128, *whole, ends, by_position, [1] * len(ends))


def measured(study: StudyFactory, evaluate: Evaluate = ASKED) -> Table:
    """The table of a study whose runs have all been measured."""
    study.arms = {arm: study.arms[arm] for arm in ("baseline", "nope", "silu", "layernorm")}
    study.evaluate = evaluate
    study.report()
    for row in study.entries:
        loss = study.loss(row.arm, row.seed)
        found = {
            each.key(128): evaluation(study, each, row.arm, row.seed) for each in evaluate.asked
        }
        write_evaluations(study.root / row.directory, loss, found)
    return build_table(collect(study.plan()))


def test_arms_are_compared_with_their_reference_on_each_of_them(study: StudyFactory) -> None:
    table = measured(study)
    losses, differences = elsewhere_sections(table)
    assert losses.titles == (
        *("arm", "0.5x (64)", "1x (128)", "2x (256)", "one", "two"),
        *("2x: 2nd trained half", "2x: beyond"),
    )
    by_arm = {row[0]: row[1:] for row in losses.rows}
    assert list(by_arm) == [row.arm for row in table.rows]
    assert by_arm["layernorm"][2] == "trained to 128"
    assert by_arm["layernorm"][5:] == ("-", "-")
    assert by_arm["nope"][5:] == ("128.0000", "256.0000")
    assert by_arm["nope"][1] == f"{table.rows[3].loss.mean:.4f}"  # type: ignore[union-attr]

    assert differences.titles[-1] == "signs as in the table"
    rows = {row[0]: row[1:] for row in differences.rows}
    assert set(rows) == {"nope", "silu", "layernorm"}
    at_two, seeds = table.elsewhere.cells, range(5)  # type: ignore[union-attr]
    expected = contrast(
        {seed: study.loss("nope", seed) + 0.3 for seed in seeds},
        {seed: study.loss("baseline", seed) - 0.1 for seed in seeds},
    )
    found = at_two["nope"]["2x"].difference
    assert found is not None and expected is not None
    assert (found.mean, found.low) == (pytest.approx(expected.mean), pytest.approx(expected.low))
    # No verdict rests on it, and the table's own contrasts are those without it.
    assert (found.p, found.adjusted_p) == (None, None)
    assert rows["nope"][0] == "baseline"
    assert rows["nope"][-1] == "2 of 2"
    assert rows["silu"][-1] == "1 of 2"
    assert rows["layernorm"][3] == "trained to 128"


def test_a_study_that_asks_for_nothing_has_the_table_it_had(study: StudyFactory) -> None:
    study.report()
    without = build_table(collect(study.plan()))
    assert without.elsewhere is None and elsewhere_sections(without) == []
    assert "elsewhere" not in json.loads(json_text(without))
    assert "lsewhere" not in markdown(without)


def test_measures_do_not_change_the_tests_of_the_table(study: StudyFactory, tmp_path: Path) -> None:
    table = measured(study)
    other = StudyFactory(tmp_path / "again" / "norms", arms=dict(study.arms))
    other.report()
    assert build_table(collect(other.plan())).comparisons == table.comparisons


def test_what_is_missing_or_of_failing_arms_is_told(study: StudyFactory) -> None:
    study.broken["silu", 1] = {"outcome": "diverged"}
    study.evaluate = ASKED
    table = measured(study)
    lost = next(row for row in study.entries if row.arm == "nope")
    (study.root / lost.directory / "evaluations.json").unlink()
    table = build_table(collect(study.root))
    losses, differences = elsewhere_sections(table)
    assert f"5 measures missing; type python scripts/evaluate.py {study.root}." in losses.notes
    rows = {row[0]: row for row in differences.rows}
    assert rows["silu"][2:] == ("-",) * 6
    assert table.elsewhere is not None
    found = table.elsewhere.cells["nope"]["2x"].difference
    assert found is not None and found.n == 4


def test_every_format_has_it(study: StudyFactory) -> None:
    table = measured(study)
    text = markdown(table)
    assert "## Elsewhere\n" in text and "## Differences elsewhere\n" in text
    assert "| trained to 128 |" in text
    found = json.loads(json_text(table))["elsewhere"]["cells"]["nope"]["2x"]
    assert found["difference"]["mean"] == pytest.approx(0.475, abs=0.01)
    records = {record["arm"]: record for record in csv.DictReader(io.StringIO(csv_text(table)))}
    assert float(records["nope"]["2x difference mean"]) == found["difference"]["mean"]
    assert records["layernorm"]["2x mean"] == "trained to 128"
    assert "trained to 128" in latex(table)
    out = io.StringIO()
    show_table(table, Console(file=out, width=200))
    assert "Differences elsewhere" in out.getvalue()


def test_the_picture_shows_each_arm_as_far_as_it_goes(
    study: StudyFactory, tmp_path: Path, figures: list[Figure]
) -> None:
    table = measured(study)
    curves = {curve.arm: curve for curve in context_curves(table)}
    assert curves["nope"].tokens == (64, 128, 256)
    assert curves["layernorm"].tokens == (64, 128)
    assert {c.arm: c.tokens[-1] for c in position_curves(table)}["layernorm"] == 128
    draw_contexts(table, tmp_path / "contexts.png")
    [figure] = figures
    for axes in figure.axes:
        assert axes.get_xscale() == "log"
        # Four arms, and the trained length.
        assert len(axes.lines) == 5
        assert set(axes.lines[0].get_xdata()) == {128}
    drawn = contexts(table)
    assert drawn is not None and next(arm["x"] for arm in drawn["arms"]) == [64, 128, 256]


def test_one_context_is_no_curve(study: StudyFactory) -> None:
    table = measured(study, Evaluate([1.0]))
    assert draw_contexts(table) is None and contexts(table) is None
    assert elsewhere_sections(table)[0].titles == ("arm", "1x (128)")
