"""Failed runs: words instead of means, and p = 1 in the family."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_noise import differences

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.estimates import plain_t
from lm_experiments.report.statistics.failures import failure_verdict, holm_with_failures

FINE = [3.0, 3.1, 3.2, 3.0, 3.1]
TWICE = [3.0, None, 3.2, float("nan"), 3.1]


@pytest.mark.parametrize(
    ("arm", "baseline", "said"),
    [
        (FINE, FINE, None),
        (TWICE, FINE, "fails 2 of 5"),
        (FINE, TWICE, "baseline fails 2 of 5"),
        (TWICE, [*FINE[:4], float("inf")], "baseline fails 1 of 5"),
    ],
)
def test_failures_are_said_in_place_of_a_comparison(
    arm: list[float | None], baseline: list[float | None], said: str | None
) -> None:
    assert failure_verdict(arm, baseline) == said


def test_a_reference_other_than_the_baseline_is_named() -> None:
    assert failure_verdict(FINE, TWICE, "silu") == "silu fails 2 of 5"


def test_an_arm_without_planned_runs_is_refused() -> None:
    with pytest.raises(InputError, match="no planned runs"):
        failure_verdict([], FINE)


def test_a_failing_arm_has_no_p_and_does_not_loosen_the_others() -> None:
    found = holm_with_failures({"a": 0.02, "b": None, "c": 0.5})
    assert found == {"a": pytest.approx(0.06), "b": None, "c": pytest.approx(1.0)}


def test_false_claims_stay_below_five_per_cent_where_one_arm_fails_at_random() -> None:
    wrong, generator = 0, np.random.default_rng(5)
    for values in differences("equal", 3000, 4, 5):
        p: list[float | None] = plain_t(values).p().tolist()
        if generator.random() < 0.5:
            p[0] = None
        adjusted = holm_with_failures(dict(zip("abcd", p, strict=True)))
        wrong += any(new is not None and new <= 0.05 for new in adjusted.values())
    assert 0.02 < wrong / 3000 < 0.05
