"""What was declared after results had been shown is exploratory, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from lm_experiments.report.statistics.exploratory import (
    NO_LEDGER,
    Pair,
    exploratory_reasons,
    late_claims,
)
from lm_experiments.rundir.ledger import (
    DECLARED,
    LOOK,
    TAKEN,
    Declaration,
    Entry,
    Look,
    Taken,
)

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
        (replace(rule, primary="accuracy"), "the measure was changed from val_loss to accuracy"),
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


BEFORE, LATER = "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"
# What stands for each arm and seed of the contrast RELU.
RUNS = [(seed, f"relu-{seed}", f"base-{seed}") for seed in (0, 1, 2)]


def taken(*names: str, ended: str = BEFORE, **said: Any) -> Entry:
    origin = Taken("runs/a", dict.fromkeys(names, ended), **said)
    return Entry(TAKEN, "2026-01-02T03:04:06+00:00", asdict(origin))


def told(*ledger: Entry) -> str:
    return exploratory_reasons(ledger, {RELU: RUNS}).get(RELU, "")


def test_a_contrast_whose_difference_could_be_seen_elsewhere_is_exploratory() -> None:
    seen = "2 runs were taken from runs/a, where their results could be seen before this was"
    assert told(declared(FIRST), taken("relu-0", "base-0")).startswith(seen)
    # A difference takes both runs, on one seed.
    assert told(declared(FIRST), taken("base-0", "base-1", "base-2")) == ""
    assert told(declared(FIRST), taken("relu-0", "base-1")) == ""
    # Either may come from another folder.
    assert told(declared(FIRST), taken("relu-0"), taken("base-0"))


def test_what_ended_after_it_was_declared_could_not_suggest_it() -> None:
    assert told(declared(FIRST), taken("relu-0", "base-0", ended=LATER)) == ""
    # A seed that was declared only afterwards could be chosen.
    fewer = replace(FIRST, seeds=[1, 2])
    more = Entry(DECLARED, LATER, asdict(FIRST))
    assert told(declared(fewer), more, taken("relu-1", "base-1", ended=LATER)) == ""
    assert told(declared(fewer), more, taken("relu-0", "base-0", ended=LATER))


def test_what_was_declared_elsewhere_before_its_results_stays_confirmatory() -> None:
    names, pairs = ("relu-0", "base-0", "relu-1", "base-1"), [["relu-0", "base-0"]]
    assert told(declared(FIRST), taken(*names[:2], declared=pairs)) == ""
    assert told(declared(FIRST), taken(*names, declared=pairs)).startswith("4 runs were taken")


def test_what_is_declared_otherwise_than_where_tests_were_shown_is_told() -> None:
    said: dict[str, Any] = {"declared": [["relu-0", "base-0"]]}
    same = taken("relu-0", "base-0", tested=FIRST, **said)
    assert told(declared(FIRST), same) == ""
    fewer = taken("relu-0", "base-0", tested=replace(FIRST, seeds=[0]), **said)
    assert told(declared(FIRST), fewer) == (
        "seeds 1, 2 were added after p-values had been shown in runs/a, which no rule declared"
    )
    other = taken("relu-0", "base-0", tested=replace(FIRST, margin=None), **said)
    assert told(declared(FIRST), other).startswith("the margin was changed from None to 0.01")


def test_a_claim_is_late_where_it_was_declared_after_tests_here_or_elsewhere() -> None:
    claimed = replace(FIRST, published=["x"])
    assert late_claims([declared(claimed), shown(), declared(claimed)], ["x"]) == {}
    assert late_claims([declared(FIRST), shown(tested=False), declared(claimed)], ["x"]) == {}
    after = late_claims([declared(FIRST), shown(), declared(claimed)], ["x"])["x"]
    assert after == "declared on 2026-01-02 or later, after p-values had been shown"
    assert late_claims([], ["x"]) == {"x": NO_LEDGER}
    there = late_claims([taken("relu-s0", tested=FIRST), declared(claimed)], ["x"])["x"]
    assert there == "not declared in runs/a, where p-values of its runs had been shown"
    assert late_claims([taken("relu-s0", tested=claimed), declared(claimed)], ["x"]) == {}
