"""What was declared after results had been shown is exploratory, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from lm_experiments.report.statistics.exploratory import NO_LEDGER, Pair, exploratory_reasons
from lm_experiments.rundir.ledger import DECLARED, LOOK, Declaration, Entry, Look

ARMS: dict[str, list[str]] = {"base": [], "relu": ["ffn=relu"], "post": ["placement=post"]}
FIRST = Declaration(
    "base", {"base": [], "relu": ["ffn=relu"]}, [["relu", "base"]], [0, 1, 2], margin=0.01
)
GROWN = replace(FIRST, arms=ARMS, contrasts=[["relu", "base"], ["post", "base"]])
RELU, POST = ("relu", "base"), ("post", "base")


def declared(said: Declaration) -> Entry:
    return Entry(DECLARED, "2026-01-02T03:04:05+00:00", asdict(said))


def shown(tested: bool = True, finished: int = 6) -> Entry:
    return Entry(LOOK, "2026-01-02T03:04:05+00:00", asdict(Look(finished, 6, tested, "base")))


def reasons(*ledger: Entry, pairs: Sequence[Pair] = (RELU,)) -> dict[Pair, str]:
    return exploratory_reasons(ledger, {pair: [] for pair in pairs})


def test_what_was_declared_first_is_confirmatory_however_often_it_is_looked_at() -> None:
    assert reasons(declared(FIRST), shown(), shown()) == {}
    # Nothing had been shown yet.
    assert reasons(declared(FIRST), declared(GROWN), shown(), pairs=[RELU, POST]) == {}
    assert reasons(declared(FIRST), shown(finished=0), declared(GROWN), pairs=[POST]) == {}


def test_an_arm_added_after_results_is_exploratory_alone() -> None:
    found = reasons(declared(FIRST), shown(tested=False), declared(GROWN), pairs=[RELU, POST])
    assert list(found) == [POST]
    assert "after results had been shown" in found[POST]


def test_a_contrast_of_known_arms_added_after_results_is_exploratory() -> None:
    more = replace(GROWN, contrasts=[*GROWN.contrasts, ["post", "relu"]])
    found = reasons(declared(GROWN), shown(), declared(more), pairs=[RELU, POST, ("post", "relu")])
    assert list(found) == [("post", "relu")]


def test_seeds_added_after_tests_make_everything_exploratory() -> None:
    more = replace(GROWN, seeds=[0, 1, 2, 3, 4])
    found = reasons(declared(GROWN), shown(), declared(more), pairs=[RELU, POST])
    assert set(found) == {RELU, POST}
    assert found[RELU].startswith("seeds 3, 4 were added after p-values had been shown")


def test_seeds_added_where_no_test_was_shown_are_declared() -> None:
    one = replace(FIRST, seeds=[0])
    assert reasons(declared(one), shown(tested=False), declared(FIRST)) == {}


def test_a_rule_a_margin_or_a_tuning_changed_after_tests_is_told() -> None:
    rule = replace(FIRST, seeds=list(range(7)), looks=[3, 7])
    for later, told in (
        (replace(rule, looks=[3, 5, 7]), "the rule for seeds was changed"),
        (replace(rule, margin=0.02), "the margin was changed from 0.01 to 0.02"),
        (replace(rule, tuned={"key": "optimizer.lr"}), "the tuning was changed"),
    ):
        found = reasons(declared(rule), shown(), declared(later))
        assert told in found[RELU]
        assert reasons(declared(rule), declared(later), shown()) == {}


def test_an_arm_is_known_by_its_overrides_as_labels_may_grow() -> None:
    arms = {"base": [], "relu at seed": ["ffn=relu"]}
    renamed = replace(FIRST, arms=arms, contrasts=[["relu at seed", "base"]])
    pair = ("relu at seed", "base")
    assert reasons(declared(FIRST), shown(), declared(renamed), pairs=[pair]) == {}
    other = replace(FIRST, arms={"base": [], "relu": ["ffn=gelu"]})
    assert list(reasons(declared(FIRST), shown(), declared(other))) == [RELU]


def test_without_a_ledger_nothing_is_confirmatory() -> None:
    assert reasons() == {RELU: NO_LEDGER}
    assert reasons(declared(FIRST), pairs=[RELU, ("x", "base")]) == {("x", "base"): NO_LEDGER}
