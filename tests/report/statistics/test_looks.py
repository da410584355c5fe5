"""Verdicts of a study that spends its seeds by rule, from its losses."""

from __future__ import annotations

import random

import pytest

from lm_experiments.report.statistics.looks import decided_contrast, decisions
from lm_experiments.report.statistics.sequential import Rule, decide

SEEDS, LOOKS = tuple(range(10, 18)), (3, 5, 8)
PAIRS = [("far", "base"), ("near", "base")]


def losses(arm: str, effect: float, seeds: int) -> dict[int, float | None]:
    own = random.Random(arm)
    return {
        seed: 3.0 + random.Random(seed).gauss(0, 0.1) + effect + own.gauss(0, 0.01)
        for seed in SEEDS[:seeds]
    }


def study(base: int, far: int, near: int) -> dict[str, dict[int, float | None]]:
    return {
        "base": losses("base", 0.0, base),
        "far": losses("far", 0.5, far),
        "near": losses("near", 0.0, near),
    }


def test_a_decided_arm_needs_no_more_seeds() -> None:
    first = decisions(SEEDS, LOOKS, PAIRS, study(3, 3, 3), None)
    assert [first[pair].verdict for pair in PAIRS] == ["worse", "needs more seeds"]
    second = decisions(SEEDS, LOOKS, PAIRS, study(5, 3, 5), None)
    assert second[PAIRS[0]] == first[PAIRS[0]]
    assert (second[PAIRS[1]].seeds, second[PAIRS[1]].verdict) == (5, "needs more seeds")
    last = decisions(SEEDS, LOOKS, PAIRS, study(8, 3, 8), None)
    assert (last[PAIRS[1]].seeds, last[PAIRS[1]].verdict) == (8, "unresolved")


def test_a_look_whose_runs_have_not_all_ended_is_not_taken() -> None:
    assert decisions(SEEDS, LOOKS, PAIRS, study(3, 3, 2), None) == {}
    found = decisions(SEEDS, LOOKS, PAIRS, study(5, 3, 4), None)
    assert {made.seeds for made in found.values()} == {3}


def test_a_failed_seed_of_either_arm_decides() -> None:
    known = study(3, 3, 3)
    known["far"][SEEDS[1]] = None
    found = decisions(SEEDS, LOOKS, PAIRS, known, None)
    assert found[PAIRS[0]].verdict == "fails"
    assert found[PAIRS[1]].verdict == "needs more seeds"
    known["base"][SEEDS[0]] = None
    assert {m.verdict for m in decisions(SEEDS, LOOKS, PAIRS, known, None).values()} == {"fails"}


def test_p_is_scaled_to_the_share_of_its_look_and_the_interval_is_the_deciding_one() -> None:
    known = study(8, 3, 8)
    made = decisions(SEEDS, LOOKS, PAIRS, known, 0.02)
    far = decided_contrast(known, PAIRS[0], SEEDS, made[PAIRS[0]], True)
    assert far is not None and far.n == 3
    share = Rule(LOOKS).alpha_at(0)
    assert far.adjusted_p == pytest.approx(made[PAIRS[0]].p * 0.05 / share)
    assert (far.low, far.high) == pytest.approx((made[PAIRS[0]].low, made[PAIRS[0]].high))
    near = decided_contrast(known, PAIRS[1], SEEDS, made[PAIRS[1]], True)
    assert near is not None and near.within is not None and near.within.equivalent
    assert -0.02 <= near.within.low < near.within.high <= 0.02


def test_arms_with_several_references_do_not_share_their_variances() -> None:
    known = study(3, 3, 3)
    pairs = [("far", "base"), ("near", "far")]
    found = decisions(SEEDS, LOOKS, pairs, known, None)
    values = {pair: [known[pair[0]][s] - known[pair[1]][s] for s in SEEDS[:3]] for pair in pairs}  # type: ignore[operator]
    assert found == decide(Rule(LOOKS), values, 0, None, moderate=False)
