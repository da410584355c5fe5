"""The rule for published claims: its cases, and its promised error rates in simulated studies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import fisher_exact, kendalltau

from lm_experiments.report.statistics.contrasts import Contrast, adjust, contrast
from lm_experiments.report.statistics.published import (
    DOES_NOT_HOLD,
    HOLDS,
    IN_SIGN,
    NOT_RESOLVED,
    difference_verdict,
    failure_rule,
    order_agreement,
    order_verdict,
)
from lm_experiments.report.statistics.ranks import kendall_tau

MARGIN = 0.01
SPAN = (0.05, 0.09)
STUDIES = 2000


def found(mean: float, spread: float = 0.002) -> Contrast:
    """An adjusted contrast over five seeds with this mean difference."""
    noise = (-1.2, -0.4, 0.1, 0.4, 1.1)
    arm = {seed: 3.0 + mean + spread * own for seed, own in enumerate(noise)}
    [item] = adjust([contrast(arm, dict.fromkeys(range(5), 3.0), MARGIN)], MARGIN)
    assert item is not None
    return item


@pytest.mark.parametrize(
    ("expect", "span", "mean", "spread", "verdict"),
    [
        ("worse", SPAN, 0.06, 0.002, HOLDS),
        ("worse", SPAN, 0.03, 0.002, IN_SIGN),
        ("worse", SPAN, 0.20, 0.002, IN_SIGN),
        ("worse", None, 0.06, 0.002, IN_SIGN),
        ("worse", SPAN, -0.06, 0.002, DOES_NOT_HOLD),
        ("worse", SPAN, 0.0, 0.002, DOES_NOT_HOLD),
        ("worse", None, 0.0, 0.002, DOES_NOT_HOLD),
        ("worse", SPAN, 0.03, 0.1, NOT_RESOLVED),
        # Within the margin it cannot be told from none.
        ("worse", (0.004, 0.02), 0.005, 0.002, HOLDS),
        ("worse", (0.004, 0.02), 0.0, 0.002, NOT_RESOLVED),
        ("worse", (-0.01, 0.6), 0.0, 0.002, NOT_RESOLVED),
        ("better", (-0.09, -0.05), -0.06, 0.002, HOLDS),
        ("better", (-0.09, -0.05), 0.06, 0.002, DOES_NOT_HOLD),
        ("equivalent", None, 0.0, 0.002, HOLDS),
        ("equivalent", None, 0.04, 0.002, DOES_NOT_HOLD),
        # Its sign is certain, and whether it is beyond the margin is not.
        ("equivalent", None, 0.0105, 0.002, NOT_RESOLVED),
    ],
)
def test_a_difference(
    expect: str, span: tuple[float, float] | None, mean: float, spread: float, verdict: str
) -> None:
    assert difference_verdict(expect, span, found(mean, spread), MARGIN) == verdict


def test_more_contrasts_make_the_rule_for_equivalence_stricter() -> None:
    item = found(0.0135, 0.002)
    assert difference_verdict("equivalent", None, item, MARGIN, 1) == DOES_NOT_HOLD
    assert difference_verdict("equivalent", None, item, MARGIN, 20) == NOT_RESOLVED


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ((5, 5, 0, 5), HOLDS),
        ((4, 5, 0, 5), HOLDS),
        ((3, 5, 0, 5), NOT_RESOLVED),
        ((3, 3, 0, 3), HOLDS),
        ((5, 5, 5, 5), NOT_RESOLVED),
        ((0, 5, 0, 5), DOES_NOT_HOLD),
        ((0, 3, 0, 3), NOT_RESOLVED),
        ((1, 8, 0, 8), DOES_NOT_HOLD),
        ((1, 5, 0, 5), NOT_RESOLVED),
    ],
)
def test_failures_are_counted(counts: tuple[int, int, int, int], verdict: str) -> None:
    assert failure_rule(*counts) == verdict


def test_failures_hold_where_fishers_test_says_so() -> None:
    for k in range(7):
        for j in range(6):
            p = fisher_exact([[k, 6 - k], [j, 5 - j]], alternative="greater")[1]
            assert (failure_rule(k, 6, j, 5) == HOLDS) == (k > 0 and p <= 0.05)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.4, 0.8, HOLDS),
        (0.1, 0.4, IN_SIGN),
        (-0.1, 0.9, NOT_RESOLVED),
        (-0.9, -0.1, DOES_NOT_HOLD),
    ],
)
def test_an_order(low: float, high: float, verdict: str) -> None:
    assert order_verdict(low, high) == verdict


def test_kendalls_tau_is_that_of_scipy_with_ties() -> None:
    values = [1.0, 2.0, 2.0, 3.0]
    for others in set(permutations([1.0, 1.0, 2.0, 4.0])):
        assert kendall_tau(values, others) == pytest.approx(kendalltau(values, others).statistic)
    assert kendall_tau([1.0, 1.0], [1.0, 2.0]) == 0.0


def test_the_agreement_is_over_the_seeds_that_all_arms_have() -> None:
    order = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    losses = {arm: dict.fromkeys(range(4), value) for arm, value in order.items()}
    losses["d"].pop(3)
    assert order_agreement(order, losses) == (1.0, 1.0, 1.0, 3)
    losses["d"].pop(2)
    assert order_agreement(order, losses) is None


def simulated(
    effects: Sequence[float], spread: float = 0.02, seeds: int = 5
) -> list[list[Contrast | None]]:
    """Studies of arms with these true differences, of unequal spread, adjusted as tables are."""
    generator = np.random.default_rng(7)
    own = spread * np.linspace(0.5, 1.5, len(effects))[:, None]
    studies = []
    for _ in range(STUDIES):
        baseline = generator.normal(3.0, spread, seeds)
        noise = own * generator.normal(size=(len(effects), seeds))
        arms = baseline + np.array(effects)[:, None] + noise
        reference = dict(enumerate(baseline.tolist()))
        items = [contrast(dict(enumerate(arm)), reference, MARGIN) for arm in arms.tolist()]
        studies.append(adjust(items, MARGIN))
    return studies


def shares(
    effects: Sequence[float], expect: str, span: tuple[float, float] | None, spread: float
) -> Counter[str]:
    """In which share of studies at least one of the claims gets each verdict."""
    counts: Counter[str] = Counter()
    for study in simulated(effects, spread):
        family = len(study)
        counts.update(
            {difference_verdict(expect, span, item, MARGIN, family) for item in study if item}
        )
    return Counter({verdict: count / STUDIES for verdict, count in counts.items()})


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.004, 0.02])
def test_claims_hold_by_chance_as_rarely_as_promised(spread: float) -> None:
    none = shares([0.0] * 4, "worse", SPAN, spread)
    assert none[HOLDS] + none[IN_SIGN] <= 0.05
    opposite = shares([-0.02] * 4, "worse", SPAN, spread)
    assert opposite[HOLDS] + opposite[IN_SIGN] <= 0.05
    outside = shares([MARGIN] * 4, "equivalent", None, spread)
    assert outside[HOLDS] <= 0.055


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.004, 0.02])
def test_true_claims_do_not_hold_by_chance_as_rarely_as_promised(spread: float) -> None:
    within = shares([0.05, 0.06, 0.08, 0.09], "worse", SPAN, spread)
    assert within[DOES_NOT_HOLD] <= 0.05
    # As small as claimed, and beyond the margin by nothing.
    smallest = shares([MARGIN] * 4, "worse", (MARGIN, 0.09), spread)
    assert smallest[DOES_NOT_HOLD] <= 0.055
    equal = shares([0.0, MARGIN, -MARGIN, 0.005], "equivalent", None, spread)
    assert equal[DOES_NOT_HOLD] <= 0.05
    # Where the noise is small a true claim is found to hold, but for the interval's own error.
    if spread < 0.01:
        alone = shares([0.05], "worse", SPAN, spread)
        assert alone[HOLDS] >= 0.93 and alone[IN_SIGN] <= 0.055


@pytest.mark.slow
def test_orders_hold_by_chance_as_rarely_as_promised() -> None:
    generator = np.random.default_rng(11)
    order = {arm: float(value) for value, arm in enumerate("abcdef")}
    counts: dict[str, Counter[str]] = {}
    for name, scale in (("none", 0.0), ("true", 1.0), ("false", -1.0)):
        counts[name] = Counter()
        for _ in range(STUDIES):
            noise = generator.normal(0.0, 0.02, (6, 5))
            losses = 3 + 0.01 * scale * np.arange(6)[:, None] + noise
            runs = {a: dict(enumerate(row)) for a, row in zip(order, losses.tolist(), strict=True)}
            agreed = order_agreement(order, runs)
            assert agreed is not None and not math.isnan(agreed[0])
            counts[name][order_verdict(agreed[1], agreed[2])] += 1
    assert counts["none"][HOLDS] + counts["none"][IN_SIGN] <= 0.035 * STUDIES
    assert counts["none"][DOES_NOT_HOLD] <= 0.035 * STUDIES
    assert counts["true"][DOES_NOT_HOLD] <= 0.001 * STUDIES
    assert counts["false"][HOLDS] <= 0.001 * STUDIES
    assert counts["true"][HOLDS] >= 0.5 * STUDIES
