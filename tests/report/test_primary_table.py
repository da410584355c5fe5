"""Studies of synthetic tasks, compared by a score of which more is better."""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from figure_contents import words
from matplotlib.figure import Figure
from synthetic_studies import StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import Table, build_table, collect
from lm_experiments.report.page import page_html
from lm_experiments.report.page.words import answer, sentences
from lm_experiments.report.pictures.forest import draw_forest
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.markdown import markdown
from lm_experiments.report.table.notes import legend, notes
from lm_experiments.rundir.measures import MEASURES
from lm_experiments.rundir.published import Claim, Source
from lm_experiments.rundir.study import read_study

SOURCE = Source("Arora et al. 2024", "figure 2", difference=-0.3)
CHANCE = 0.1
# By arm: accuracy in length, and beyond.
SCORES = {"baseline": (0.9, 0.4), "no norm": (0.5, 0.7), "nope": (0.15, 0.1), "silu": (0.9, 0.4)}


@pytest.fixture
def scored(study: StudyFactory) -> StudyFactory:
    """A study whose losses rank the arms otherwise than their scores do."""
    study.arms = {arm: study.arms[arm] for arm in SCORES}
    study.primary, study.margin = "accuracy", 0.05
    for arm, (own, beyond) in SCORES.items():
        for seed in study.seeds:
            noise = random.Random(f"{arm} {seed}").gauss(0, 0.01)
            study.changes[arm, seed] = {
                "accuracy": own + noise,
                "exact_match": own / 2,
                "test_accuracy": beyond + noise,
                "chance": CHANCE,
                "bits_per_byte": None,
            }
    return study


def table_of(root: Path) -> Table:
    return build_table(collect(root))


def verdicts(table: Table) -> dict[str, str]:
    return {item.arm: item.verdict for item in table.comparisons}


def test_more_is_better_by_a_score(scored: StudyFactory) -> None:
    table = table_of(scored.whole())
    assert table.metric == "accuracy"
    assert verdicts(table) == {"no norm": "worse", "nope": "worse", "silu": "equivalent"}
    assert [row.arm for row in table.rows][2:] == ["no norm", "nope"]
    assert "the highest accuracy, 0.9" in answer(table)
    assert sentences(table)[-1][1].startswith("nope is worse than baseline: -0.7")
    assert "Higher is better." in legend(table)
    assert any("above zero is better" in note for note in notes(table))
    assert "below zero is a lower loss" not in page_html(table)


def test_losses_stay_as_they_were(scored: StudyFactory) -> None:
    scored.primary = "val_loss"
    table = table_of(scored.whole())
    assert verdicts(table)["no norm"] == "worse"
    assert [row.arm for row in table.rows][-1] == "no norm"
    assert "the lowest val loss" in answer(table)
    assert "Higher" not in legend(table)


def test_beyond_the_trained_length_arms_are_compared_on_the_test_problems(
    scored: StudyFactory,
) -> None:
    for (_, seed), changes in scored.changes.items():
        changes |= {"test_loss": 3.0 + seed / 10, "test_tokens": 9}
    table = table_of(scored.whole())
    assert table.metric == "test_accuracy"
    assert verdicts(table) == {"no norm": "better", "nope": "worse", "silu": "equivalent"}
    assert table.rows[0].arm == "no norm"
    # What was learnt in length stands beside it.
    [head] = [line for line in markdown(table).splitlines() if "test accuracy" in line]
    assert "| accuracy |" in head


def test_the_table_has_scores_and_the_runs_that_left_chance(scored: StudyFactory) -> None:
    scored.changes["no norm", 1]["accuracy"] = CHANCE + 0.09
    table = table_of(scored.whole())
    text = markdown(table)
    assert all(title in text for title in ("accuracy", "exact match", "left chance"))
    assert "bits/byte" not in text
    records = {record["arm"]: record for record in csv.DictReader(io.StringIO(csv_text(table)))}
    assert float(records["nope"]["exact_match"]) == pytest.approx(0.075)
    rows = [line for line in text.splitlines() if line.startswith(("| no norm", "| nope"))]
    assert "4 of 5" in rows[0]
    assert "0 of 5" in rows[1]
    content = json.loads(json_text(table))
    assert content["unit"] == "share of answers"
    assert content["arms"][0]["main"]["runs"][0]["accuracy"] > 0.8


def test_a_table_of_text_has_no_column_of_them(study: StudyFactory) -> None:
    text = markdown(table_of(study.whole()))
    assert "accuracy" not in text
    assert "left chance" not in text
    assert "bits/byte" in text


def test_the_forest_says_on_which_side_is_better(
    scored: StudyFactory, figures: list[Figure], tmp_path: Path
) -> None:
    draw_forest(table_of(scored.whole()), tmp_path / "forest.png")
    assert "arm - baseline (share of answers), 95 % interval; above zero is better" in words(
        figures[0]
    )


@pytest.mark.parametrize(
    ("expect", "span", "verdict"),
    [
        ("worse", [-0.5, -0.3], "holds"),
        ("worse", [-0.2, -0.1], "holds in sign"),
        ("better", [0.1, 0.2], "does not hold"),
    ],
)
def test_published_accuracies_are_held_against_accuracies(
    scored: StudyFactory, expect: str, span: list[float], verdict: str
) -> None:
    claim = Claim(
        "A", expect, ["no norm", "baseline"], range=span, unit="accuracy", sources=[SOURCE]
    )
    scored.published = [claim]
    [found] = table_of(scored.whole()).published
    assert found.verdict == verdict
    assert claim.published.endswith(" accuracy")


def test_an_order_of_losses_is_not_held_against_accuracies(scored: StudyFactory) -> None:
    # Best first, and so are the accuracies.
    ranked = sorted(SCORES, key=lambda arm: -SCORES[arm][0])
    losses = {arm: 1.0 + place for place, arm in enumerate(ranked)}
    scores = {arm: 1.0 - place / 10 for place, arm in enumerate(ranked)}
    scored.published = [
        Claim("A", "order", order=losses, sources=[replace(SOURCE, difference=None)]),
        Claim("B", "order", order=scores, unit="accuracy", sources=[SOURCE]),
    ]
    by_loss, by_score = table_of(scored.whole()).published
    assert by_loss.verdict == "not testable here"
    assert by_loss.reason == "the table has no nats/token to compare"
    assert by_score.verdict == "holds"


def test_bits_per_byte_may_be_declared_with_one_tokenizer(study: StudyFactory) -> None:
    study.primary, study.margin = "bits_per_byte", 0.01
    table = table_of(study.whole())
    assert (table.metric, table.plan.margin) == ("bits_per_byte", 0.01)
    assert not [note for note in notes(table) if "tokenizers differ" in note]
    assert any("equivalent is within 0.01 bits per byte" in note for note in notes(table))


def test_what_is_claimed_follows_the_direction() -> None:
    with pytest.raises(InputError, match="of which those above zero are better"):
        Claim("A", "better", ["a", "b"], unit="accuracy", sources=[SOURCE])
    order = {"NoPE": 0.69, "T5": 0.55, "ALiBi": 0.5, "RoPE": 0.33}
    claim = Claim("B", "order", order=order, unit="accuracy", sources=[SOURCE])
    assert claim.rule == "NoPE (0.69) > T5 (0.55) > ALiBi (0.5) > RoPE (0.33)"
    with pytest.raises(InputError, match="the best first"):
        Claim("B", "order", order=order, sources=[SOURCE])


def test_a_measure_that_is_none_is_refused() -> None:
    values = {"name": "a", "baseline": "x", "arms": {"x": [], "y": []}}
    with pytest.raises(InputError, match="it can be val_loss, bits_per_byte, accuracy, exact_m"):
        read_study({**values, "primary": "perplexity"})
    tune = {"grid": [1e-3, 3e-3, 1e-2]}
    with pytest.raises(InputError, match=r"primary=accuracy does not go with study\.tune"):
        read_study({**values, "primary": "accuracy", "tune": tune})
    assert all(read_study({**values, "primary": name}) for name in MEASURES)
