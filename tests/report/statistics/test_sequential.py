"""Group-sequential looks: single decisions, and thousands of simulated studies under the rule."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_noise import differences

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.estimates import Array, holm_adjusted, plain_t
from lm_experiments.report.statistics.sequential import (
    Look,
    Rule,
    decide,
    expected_runs,
    replay,
    seeds_spent,
)

BETTER, WORSE, EQUIVALENT = 1, 2, 3
LOOKS = [(3, 5, 8), (5, 10, 15, 20)]
STUDIES = 10_000  # The standard error of a rate of .05 is .0022.
ALL = pytest.mark.parametrize("looks", LOOKS, ids=str)


def studies(rule: Rule, values: Array, margin: float | None) -> list[Look]:
    return replay(rule, values, len(rule.looks) - 1, margin, moderate=True)


def differs(looks: list[Look]) -> Array:
    return np.isin(looks[-1].codes, (BETTER, WORSE)).astype(float)


def covered(rule: Rule, looks: list[Look], effects: Array) -> Array:
    """How often each arm's interval, at the look that stopped it, holds the true effect."""
    seeds = seeds_spent(rule, looks)
    inside = np.zeros(seeds.shape, dtype=bool)
    for at, (n, look) in enumerate(zip(rule.looks, looks, strict=True)):
        low, high = look.plain.interval(rule.confidence_at(at, seeds.shape[-1]))
        inside |= (seeds == n) & (low <= effects) & (effects <= high)
    return np.asarray(inside.mean(axis=0))


@ALL
def test_the_levels_of_all_looks_add_up(looks: tuple[int, ...]) -> None:
    levels = [Rule(looks).alpha_at(look) for look in range(len(looks))]
    assert sum(levels) == pytest.approx(0.05)
    assert levels[0] == pytest.approx(0.05 * looks[0] / looks[-1])


@pytest.mark.parametrize("looks", [(), (2, 5), (5, 5), (5, 3)])
def test_impossible_looks_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="looks"):
        Rule(looks)


CLOSE = [0.001, -0.001, 0.002, -0.002, 0.0]
HIGHER = [0.5, 0.51, 0.49, 0.505, 0.495]
OPEN = [0.04, -0.08, 0.12, 0.08, -0.04]


def test_each_arm_gets_its_verdict_at_the_look_that_decides_it() -> None:
    arms = {
        "close": CLOSE,
        "higher": HIGHER,
        "lower": [-x for x in HIGHER],
        "open": OPEN,
        "fails": [0.1, None],
        "same": [0.0] * 5,
    }
    found = decide(Rule((5, 10)), arms, look=0, margin=0.1)
    assert {arm: item.verdict for arm, item in found.items()} == {
        "close": "equivalent",
        "higher": "worse",
        "lower": "better",
        "open": "needs more seeds",
        "fails": "fails",
        "same": "identical",
    }
    assert found["fails"].mean is None and found["fails"].p == 1.0
    assert found["higher"].mean == pytest.approx(0.5)
    assert found["higher"].low == pytest.approx(0.5 - 2.776 * np.std(HIGHER, ddof=1) / 5**0.5, 1e-3)


def test_only_open_arms_need_more_seeds_and_the_last_look_ends_the_study() -> None:
    rule = Rule((5, 10))
    arms = {"higher": HIGHER, "open": OPEN + OPEN}
    found = decide(rule, arms, look=1)
    assert [item.verdict for item in found.values()] == ["worse", "unresolved"]
    assert [item.seeds for item in found.values()] == [5, 10]
    with pytest.raises(InputError, match="Arm open has 5 of 10 seeds"):
        decide(rule, {"higher": HIGHER, "open": OPEN}, look=1)


def test_later_seeds_do_not_change_an_earlier_verdict() -> None:
    reversed_later = HIGHER + [-5.0] * 5
    found = decide(Rule((5, 10)), {"higher": reversed_later, "open": OPEN + OPEN}, look=1)
    assert (found["higher"].verdict, found["higher"].seeds) == ("worse", 5)


def test_an_arm_that_fails_later_keeps_the_verdict_it_had_and_no_other() -> None:
    arms = {"higher": [*HIGHER, None], "open": [*OPEN, None]}
    found = decide(Rule((5, 10)), arms, look=1)
    assert [item.verdict for item in found.values()] == ["worse", "fails"]


def test_a_failing_arm_still_counts_in_the_family() -> None:
    rule, arm = Rule((5, 10)), [0.3, 0.1, 0.2, 0.3, 0.1]
    alone = decide(rule, {"arm": arm}, look=0, moderate=False)["arm"]
    beside = decide(rule, {"arm": arm, "fails": [None]}, look=0, moderate=False)["arm"]
    assert beside.p == pytest.approx(2 * alone.p)
    assert (alone.verdict, beside.verdict) == ("worse", "worse")


def test_arms_that_are_equivalent_or_fail_still_count_at_later_looks() -> None:
    rule, arm = Rule((5, 10)), [*OPEN, *(x + 0.01 for x in OPEN)]
    alone = decide(rule, {"arm": arm}, look=1, moderate=False)["arm"]
    arms = {"arm": arm, "close": CLOSE, "fails": [None]}
    beside = decide(rule, arms, look=1, margin=0.1, moderate=False)
    assert (beside["close"].verdict, beside["close"].seeds) == ("equivalent", 5)
    assert beside["arm"].p == pytest.approx(3 * alone.p)


def test_a_rejected_arm_makes_room_for_the_others() -> None:
    rule, arm = Rule((5, 10)), [*OPEN, *(x + 0.01 for x in OPEN)]
    alone = decide(rule, {"arm": arm}, look=1, moderate=False)["arm"]
    beside = decide(rule, {"arm": arm, "higher": HIGHER}, look=1, moderate=False)["arm"]
    assert beside.p == pytest.approx(alone.p)


def test_a_look_beyond_the_rule_is_refused() -> None:
    with pytest.raises(InputError, match="looks 0 to 1"):
        decide(Rule((5, 10)), {"arm": OPEN}, look=2)


def test_a_plan_says_the_expected_and_the_largest_number_of_runs() -> None:
    rule = Rule((5, 10, 15, 20))
    clear = expected_runs(rule, [8.0, 8.0], sd=1.0, margin=2.0)
    assert clear.expected == pytest.approx(15, abs=0.5)  # Three arms of five seeds.
    assert (clear.largest, clear.decided) == (60, 1.0)
    open_question = expected_runs(rule, [0.7, 0.7], sd=1.0)
    assert open_question.expected > 50 and open_question.decided < 0.5
    # Everything scales with the spread of the runs.
    assert expected_runs(rule, [0.08, 0.08], sd=0.01, margin=0.02) == clear


@pytest.mark.slow
@ALL
def test_adding_seeds_without_the_rule_claims_too_much(looks: tuple[int, ...]) -> None:
    values = differences("equal", STUDIES, 4, looks[-1])
    claims = [holm_adjusted(plain_t(values[..., :n]).p()).min(axis=-1) <= 0.05 for n in looks]
    assert 0.1 < np.any(claims, axis=0).mean() < 0.2
    assert differs(studies(Rule(looks), values, None)).any(axis=-1).mean() <= 0.05


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("arms", [1, 4, 12])
@pytest.mark.parametrize("kind", ["equal", "one arm at 3x", "baseline at 3x", "skewed"])
def test_false_claims_over_all_looks(looks: tuple[int, ...], arms: int, kind: str) -> None:
    rule = Rule(looks)
    found = studies(rule, differences(kind, STUDIES, arms, looks[-1]), None)
    rate = differs(found).any(axis=-1).mean()
    assert rate <= 0.05, rate
    coverage = covered(rule, found, np.zeros(arms))
    # Outliers widen t intervals: without any look they cover 96.9 % at three seeds.
    most = 0.98 if kind == "skewed" else 0.97
    assert np.all((coverage > 0.93) & (coverage < most)), coverage


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("arms", [1, 4, 12])
def test_skew_that_the_baseline_does_not_share_costs_little(
    looks: tuple[int, ...], arms: int
) -> None:
    values = differences("one skewed arm", STUDIES, arms, looks[-1])
    # Such noise is not normal, and a t test of ten seeds without any looks reaches .06 here.
    assert differs(studies(Rule(looks), values, None)).any(axis=-1).mean() <= 0.06


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("kind", ["equal", "one arm at 3x", "skewed"])
def test_dropping_decided_arms_and_one_failing_keeps_the_level(
    looks: tuple[int, ...], kind: str
) -> None:
    # Of six arms three do nothing, one fails at the third seed, and two differ by the margin.
    effects = np.array([0.0, 0.0, 0.0, 0.0, 3.0, -3.0])
    values = differences(kind, STUDIES, 6, looks[-1]) + effects[:, None]
    values[:, 3, 2] = np.nan
    rule = Rule(looks)
    found = studies(rule, values, 3.0)
    differ = differs(found)
    assert differ[:, :3].any(axis=-1).mean() <= 0.05
    assert not differ[:, 3].any()
    equivalent = found[-1].codes == EQUIVALENT
    assert equivalent[:, 4:].any(axis=-1).mean() <= 0.05
    # The true differences are found, or the rule would hold its level by saying nothing.
    assert differ[:, 4].mean() > (0.5 if kind == "equal" else 0.05)
    coverage = covered(rule, found, effects)[[0, 1, 2, 4, 5]]
    assert np.all((coverage > 0.93) & (coverage < 0.97)), coverage


@pytest.mark.slow
def test_the_rule_spends_fewer_runs_than_ten_seeds_for_all() -> None:
    rule, effects = Rule((5, 10, 15, 20)), [0.0, 2.5, 4.0, 6.0]
    found = expected_runs(rule, effects, sd=1.0, margin=2.0)
    assert found.expected < 50 and found.decided > 0.9
