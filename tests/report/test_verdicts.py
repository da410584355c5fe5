"""What may be said of a contrast, case by case, and the order of arms."""

from __future__ import annotations

import math

import pytest

from lm_experiments.report.statistics.contrasts import Contrast, adjust, contrast
from lm_experiments.report.statistics.verdicts import control_verdict, ranking_key, verdict

CLEAR = [0.100, 0.101, 0.102]
NOISY = [0.1, -0.2, 0.15]
TINY = [0.0030, 0.0031, 0.0032]


def made(differences: list[float], margin: float | None = None, others: int = 0) -> Contrast:
    """An adjusted contrast, in a family with `others` that have no p."""
    values = {seed: 3.0 + d for seed, d in enumerate(differences)}
    reference = dict.fromkeys(values, 3.0)
    first = adjust([contrast(values, reference, margin), *[None] * others], margin)[0]
    assert first is not None
    return first


def said(result: Contrast | None, failed: int = 0, complete: bool = True) -> str:
    return verdict(result, f"fails {failed} of 5" if failed else None, complete)


def test_a_lower_loss_is_better() -> None:
    assert said(made([-d for d in CLEAR])) == "better"
    assert said(made(CLEAR)) == "worse"


def test_noise_is_unresolved_with_and_without_a_margin() -> None:
    assert said(made(NOISY)) == "unresolved"
    assert said(made(NOISY, margin=0.01)) == "unresolved"


def test_the_adjusted_p_decides_not_the_plain_one() -> None:
    alone, in_family = made([0.1, 0.2, 0.15]), made([0.1, 0.2, 0.15], others=3)
    assert alone.p == in_family.p and alone.p is not None and alone.p < 0.05
    assert (said(alone), said(in_family)) == ("worse", "unresolved")


def test_certainly_different_but_within_the_margin_is_equivalent() -> None:
    result = made(TINY, margin=0.01)
    assert result.adjusted_p is not None and result.adjusted_p < 0.05
    assert said(result) == "equivalent"
    assert said(made(TINY)) == "worse"


def test_certainly_different_and_not_within_the_margin_keeps_its_sign() -> None:
    assert said(made(CLEAR, margin=0.01)) == "worse"


@pytest.mark.parametrize("n", [1, 2])
def test_below_three_seeds_nothing_is_claimed(n: int) -> None:
    assert said(made(CLEAR[:n], margin=10.0)) == f"exploratory, n = {n}"
    assert said(made([0.1] * n)) == f"exploratory, n = {n}"


@pytest.mark.parametrize("differences", [CLEAR, NOISY, TINY, CLEAR[:1]])
def test_a_failing_run_is_the_verdict_whatever_the_survivors_say(differences: list[float]) -> None:
    assert said(made(differences, margin=0.01), failed=2) == "fails 2 of 5"


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("margin", [None, 0.01])
def test_equal_losses_are_identical_and_not_equivalent(n: int, margin: float | None) -> None:
    assert said(made([0.0] * n, margin)) == "identical: changes nothing"
    assert said(made([*[0.0] * n, math.ulp(3.0)], margin)) != "identical: changes nothing"
    assert said(made([0.0] * n, margin), failed=1) == "fails 1 of 5"


def test_an_arm_without_any_loss_fails_or_has_no_comparison() -> None:
    assert said(None, failed=5) == "fails 5 of 5"
    assert said(None) == "no comparison"


def test_an_unfinished_study_has_no_verdicts_at_all() -> None:
    assert said(made(CLEAR), complete=False) == "unfinished"
    assert said(made(CLEAR), failed=1, complete=False) == "unfinished"
    assert control_verdict(made([0.0]), None, False) == "unfinished"


def test_an_unadjusted_contrast_is_refused() -> None:
    bare = contrast({0: 3.0, 1: 3.1, 2: 3.3}, {0: 3.1, 1: 3.0, 2: 3.0})
    with pytest.raises(ValueError, match=r"through adjust\(\)"):
        said(bare)


def test_a_control_is_identical_only_to_the_last_bit() -> None:
    nearly = made([0.0, 0.0, math.ulp(3.0)])
    assert control_verdict(made([0.0]), None, True) == "identical"
    assert control_verdict(made([0.0, 0.0, 0.0]), None, True) == "identical"
    expected = "differs: the study is not reproducible"
    assert control_verdict(nearly, None, True) == expected
    assert control_verdict(made([0.1, -0.1, 0.0]), None, True) == expected


def test_a_control_that_cannot_be_compared_says_so() -> None:
    unpaired = contrast({0: 3.0, 1: 3.0}, {2: 3.0, 3: 3.0})
    assert control_verdict(unpaired, None, True) == "no comparison"
    assert control_verdict(None, None, True) == "no comparison"
    assert control_verdict(made([0.0]), "fails 1 of 2", True) == "fails 1 of 2"


def test_arms_with_failures_rank_after_all_without() -> None:
    arms = {
        "all failed": (None, 3),
        "one failed": (1.0, 1),
        "good": (3.0, 0),
        "one failed, worse": (2.0, 1),
        "not run": (None, 0),
        "not a number": (math.nan, 1),
        "bad": (9.0, 0),
    }
    ranked = sorted(arms, key=lambda arm: ranking_key(*arms[arm]))
    assert ranked == [
        "good",
        "bad",
        "not run",
        "one failed",
        "one failed, worse",
        "not a number",
        "all failed",
    ]
    assert ranking_key(math.nan, 1) == ranking_key(None, 1) == (1, math.inf)
