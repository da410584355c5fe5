"""Claims about what tuning found: the sensitivity to a value, and the value that is best."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from synthetic_studies import GRID, StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import build_table, collect
from lm_experiments.report.statistics.published import (
    DOES_NOT_HOLD,
    HOLDS,
    IN_SIGN,
    NOT_RESOLVED,
    NOT_TESTABLE,
    Finding,
    measured_verdict,
)
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.published import sentence
from lm_experiments.rundir.published import Claim, Source

SEEDS = (100, 101, 102)
PAIR = ["silu", "baseline"]
SOURCES = [Source("Wortsman et al. 2023", "figure 1")]
LESS = Claim("It is robust.", "better", PAIR, measure="sensitivity", sources=SOURCES)
STAYS = Claim("It stays.", "equivalent", PAIR, range=[-1, 1], measure="best value", unit="octaves",
              sources=SOURCES)  # fmt: skip
FALLS = Claim("It falls.", "lower", PAIR, range=[-2, -1], measure="best value", unit="octaves",
              sources=SOURCES)  # fmt: skip


def parabola(best: float, curvature: float) -> dict[float, float]:
    """The losses of a grid whose best value lies at `best`."""
    return {rate: 3.0 + curvature * math.log2(rate / best) ** 2 for rate in GRID}


@pytest.fixture
def tuned(study: StudyFactory) -> StudyFactory:
    """Two arms whose losses are parabolas: the best value of silu is one octave and a bit lower."""
    study.arms = {arm: study.arms[arm] for arm in ("baseline", "silu")}
    study.tuned, study.tuning_seeds = True, SEEDS
    study.published = [LESS, STAYS, FALLS]
    for seed, shift in zip(SEEDS, (0.98, 1.0, 1.03), strict=True):
        for arm, losses in (
            ("baseline", parabola(4e-3 * shift, 0.2)),
            ("silu", parabola(1.8e-3, 0.1)),
        ):
            study.trials |= {(arm, seed, rate): loss for rate, loss in losses.items()}
            study.changes[arm, seed] = {"initial_loss": 7.0}
    return study


def found(study: StudyFactory) -> dict[str, Finding]:
    table = build_table(collect(study.whole()))
    return {item.claim.claim: item for item in table.published}


def test_the_best_value_is_that_of_the_parabola_and_its_difference_is_in_octaves(
    tuned: StudyFactory,
) -> None:
    claims = found(tuned)
    falls, stays = claims["It falls."], claims["It stays."]
    assert falls.mean == pytest.approx(math.log2(1.8 / 4) - math.log2(0.98 * 1.03) / 3)
    assert (falls.verdict, stays.verdict, falls.n) == (HOLDS, DOES_NOT_HOLD, 3)


def test_sensitivity_is_compared_over_the_tuning_seeds(tuned: StudyFactory) -> None:
    less = found(tuned)["It is robust."]
    assert less.verdict == IN_SIGN and less.mean is not None and less.mean < 0
    mine, reference = parabola(1.8e-3, 0.1), parabola(4e-3, 0.2)
    means = [sum(losses.values()) / 3 - min(losses.values()) for losses in (mine, reference)]
    assert less.mean == pytest.approx(means[0] - means[1], abs=0.01)


def test_the_notes_say_what_differs_and_a_row_shows_claims_on_its_loss_alone(
    tuned: StudyFactory,
) -> None:
    table = build_table(collect(tuned.whole()))
    said = sentence(table.published[1], table)
    assert "(best value of silu - baseline: equivalent within -1 to +1 octaves)" in said
    assert "octaves over 3 tuning seeds; does not hold at this scale." in said
    row = next(row for row in table.rows if row.arm == "silu")
    shown = {column.title: column.text(row) for column in columns(table)}
    assert shown["published"] == "-"


@pytest.mark.parametrize(
    ("seeds", "rates", "reason"),
    [
        (SEEDS[:2], {}, "fewer than 3 tuning seeds"),
        (SEEDS, dict.fromkeys(GRID, 3.0), "lies at the edge of the grid"),
    ],
)
def test_what_is_not_testable_says_why(
    tuned: StudyFactory, seeds: tuple[int, ...], rates: dict[float, float], reason: str
) -> None:
    tuned.tuning_seeds = seeds
    tuned.trials |= {("silu", seeds[0], rate): loss for rate, loss in rates.items()}
    item = found(tuned)["It falls."]
    assert item.verdict == NOT_TESTABLE and reason in item.reason


def test_without_tuning_it_is_not_testable(study: StudyFactory) -> None:
    study.published = [LESS]
    assert found(study)["It is robust."].reason == "the study has no tune:"


@pytest.mark.parametrize(
    ("expect", "span", "interval", "verdict"),
    [
        ("equivalent", (-1, 1), (-0.9, 0.9), HOLDS),
        ("equivalent", (-1, 1), (-1.1, 0.9), NOT_RESOLVED),
        ("equivalent", (-1, 1), (1.1, 1.9), DOES_NOT_HOLD),
        ("lower", (-2, -1), (-1.5, -0.1), HOLDS),
        ("lower", (-2, -1), (-0.9, -0.1), IN_SIGN),
        ("lower", None, (-0.9, -0.1), IN_SIGN),
        ("lower", (-2, -1), (-3.0, 0.1), NOT_RESOLVED),
        ("higher", (1, 2), (-3.0, -0.1), DOES_NOT_HOLD),
    ],
)
def test_the_rule(
    expect: str,
    span: tuple[float, float] | None,
    interval: tuple[float, float],
    verdict: str,
) -> None:
    assert measured_verdict(expect, span, *interval) == verdict


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"measure": "rank"}, "measure=rank is not known; it can be loss, sensitivity, best value"),
        ({"expect": "fails"}, "fails is not known for measure: best value; it can be lower"),
        ({"unit": "nats/token"}, "it can be octaves"),
        ({"range": None, "expect": "equivalent"}, r"write range: \[-1, 1\]"),
        ({"expect": "higher"}, "those below zero are lower"),
    ],
)
def test_what_cannot_be_claimed_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(FALLS, **changes)  # type: ignore[arg-type]
