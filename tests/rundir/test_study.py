"""What a study may declare, and what it is told when it declares something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lm_experiments.errors import InputError
from lm_experiments.rundir.measures import MEASURES
from lm_experiments.rundir.published import LOSS
from lm_experiments.rundir.study import Study, Tuning, read_study

ARMS = {"base": [], "other": ["ffn=relu"]}
SHIPPED = Path(__file__).resolve().parents[2] / "conf" / "study"


def declared(**changes: Any) -> dict[str, Any]:
    return {"name": "s", "baseline": "base", "arms": ARMS, "seeds": [0, 1], **changes}


CLAIM: dict[str, Any] = {
    "claim": "ReLU is worse",
    "expect": "worse",
    "contrast": ["other", "base"],
    "sources": [{"source": "A 2020", "read": "table 1", "difference": 0.02}],
}
AN_ORDER = {"expect": "order", "contrast": []}
WRONG_CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "that expects nothing known": (
        {"expect": "bigger"},
        "study.published, 'ReLU is worse': expect=bigger is not known; it can be better, worse,",
    ),
    "in another unit": (
        {"unit": "ppl"},
        "unit=ppl is not known; it can be nats/token, bits/byte, acc",
    ),
    "without a source": ({"sources": []}, "there are no sources"),
    "whose source is not read": (
        {"sources": [{"source": "A 2020"}]},
        "study.published[0].sources[0].read is not set",
    ),
    "whose source has an empty place": (
        {"sources": [{"source": "A 2020", "read": ""}]},
        "read: (the table, figure or page",
    ),
    "of no runs": ({"sources": [{"source": "A", "read": "p. 1", "runs": 0}]}, "A has runs=0"),
    "of one arm": ({"contrast": ["other"]}, "contrast=['other'] must be two arms"),
    "with half a range": ({"range": [0.1]}, "range=[0.1] must be two numbers"),
    "with a range that falls": ({"range": [0.2, 0.1]}, "the lower first"),
    "against its own figure": ({"expect": "better"}, "goes against its differences, +0.02,"),
    "of failures with a difference": ({"expect": "fails"}, "counts runs; leave range:"),
    "of an order with a contrast": ({"expect": "order"}, "has no contrast:, range: or context:"),
    "of an order of three": (
        {**AN_ORDER, "order": {"a": 1.0, "b": 2.0, "c": 3.0}},
        "needs 4 arms or more",
    ),
    "of an order that is none": (
        {**AN_ORDER, "order": {"a": 1.0, "b": 2.0, "c": 1.5, "d": 3.0}},
        "the best first",
    ),
    "with an unknown key": ({"sorces": []}, "did you mean study.published[0].sources?"),
}
WRONG_LADDERS: dict[str, tuple[Any, str]] = {
    "by nothing known": ({"by": "width"}, "it can be budget, size, tokens_per_parameter."),
    "that is a word": ("budget", "study.ladder='budget' is not a section"),
    "of two rungs": ({"steps": [10, 20]}, "study.ladder has 2 rungs, [10, 20]; 3 or more"),
    "that falls": ({"steps": [30, 20, 10]}, "must be whole numbers above 0, ascending"),
    "with a rung twice": ({"steps": [10, 10, 20]}, "must be whole numbers above 0, ascending"),
    "that starts at 0": ({"steps": [0, 10, 20]}, "must be whole numbers above 0, ascending"),
    "of sizes by budget": ({"sizes": ["a", "b", "c"]}, "has steps: study.ladder.steps="),
    "of steps by size": ({"by": "size", "steps": [1, 2, 3]}, "has sizes: study.ladder.sizes="),
    "of one size": ({"by": "size", "sizes": "tiny"}, "study.ladder.sizes='tiny' is neither"),
    "of sizes that are words": ({"by": "size", "sizes": {"a": "b"}}, "is neither a list of sizes"),
    "without tokens": ({"by": "tokens_per_parameter", "ratio": 0}, "study.ladder.ratio=0 must be"),
}
WRONG = {
    "a baseline that is no arm": ({"baseline": "bass"}, "'bass', which is not among the arms"),
    "no seeds": ({"seeds": []}, "study.seeds is empty"),
    "a seed twice": ({"seeds": [1, 1]}, "must differ from each other"),
    "overrides that are no list": ({"arms": {"base": "ffn=relu"}}, "write them as a list"),
    "a label that YAML reads as false": (
        yaml.safe_load("arms: {base: [], no: [position=none]}"),
        "a label is read as False, and not as the word that was written; quote it",
    ),
    "a label that YAML reads in base 8": (yaml.safe_load("arms: {base: [], 010: []}"), "as 8,"),
    "a baseline that YAML reads as true": ({"baseline": True}, "put quotes around"),
    "a key that YAML reads as true": ({"tune": {True: 1}}, "study.tune.True is not a key"),
    "an unknown contrast": ({"contrasts": [["base", "third"]]}, "'third'"),
    "an arm against itself": ({"contrasts": [["base", "base"]]}, "write two arms"),
    "a contrast twice": ({"contrasts": [["other", "base"]] * 2}, "compare the same two arms"),
    "a mirrored contrast": (
        {"contrasts": [["other", "base"], ["base", "other"]]},
        "['other', 'base'] and ['base', 'other'], which compare the same two arms",
    ),
    "an unknown control": ({"controls": ["third"]}, "'third'"),
    "a negative margin": ({"margin": -0.1}, "study.margin=-0.1"),
    "another metric": ({"primary": "perplexity"}, "it can be val_loss"),
    "an unknown key": ({"seed": [1]}, "did you mean study.seeds?"),
    "tuning on reporting seeds": (
        {"tune": {"grid": [1e-3, 3e-3, 1e-2], "seeds": [1]}},
        "share [1]",
    ),
    "a rule of two seeds": ({"seeds": {"first": 2, "more": 1, "at_most": 9}}, "first is 3 or more"),
    "a rule without more": ({"seeds": {"first": 3, "more": 0, "at_most": 9}}, "more is 1 or more"),
    "a rule that ends early": ({"seeds": {"first": 5, "more": 1, "at_most": 4}}, "at_most is not"),
    "a rule without its end": ({"seeds": {"first": 5, "more": 1}}, "study.seeds.at_most is not"),
    "looks that fall": ({"seeds": [0, 1, 2, 3], "looks": [4, 3]}, "rising numbers"),
    "looks beyond the seeds": ({"looks": [3]}, "must end with the number of study.seeds"),
    "tuning beside a rule": (
        {"seeds": {"first": 3, "more": 1, "at_most": 4}, "tune": {"grid": [1e-3, 3e-3, 1e-2]}},
        "does not go with seeds by rule",
    ),
    **{
        f"a claim {case}": ({"published": [{**CLAIM, **wrong}]}, told)
        for case, (wrong, told) in WRONG_CLAIMS.items()
    },
    "a grid of two": ({"tune": {"grid": [1e-3, 3e-3]}}, "three or more"),
    "a grid that falls": ({"tune": {"grid": [1e-2, 3e-3, 1e-3]}}, "ascending"),
    **{
        f"a ladder {case}": ({"ladder": wrong}, told)
        for case, (wrong, told) in WRONG_LADDERS.items()
    },
    "a ladder and a rule for seeds": (
        {"ladder": {}, "seeds": {"first": 5, "more": 5, "at_most": 20}},
        "study.ladder does not go with seeds by rule",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_declaration_is_one_sentence(case: str) -> None:
    changes, sentence = WRONG[case]
    with pytest.raises(InputError) as caught:
        read_study(declared(**changes))
    assert sentence in str(caught.value)


def test_every_other_arm_is_compared_with_the_baseline_unless_declared() -> None:
    assert read_study(declared()).compared == [["other", "base"]]
    study = read_study(declared(contrasts=[["base", "other"]]))
    assert study.compared == [["base", "other"]]


def test_sizes_are_names_or_overrides() -> None:
    sizes = {"a": ["size=tiny"], "b": [], "c": ["model.n_layers=8"]}
    for given, read in (({**sizes}, sizes), (["a", "b", "c"], {n: [f"size={n}"] for n in "abc"})):
        ladder = read_study(declared(ladder={"by": "size", "sizes": given})).ladder
        assert ladder is not None and ladder.sizes == read


@pytest.mark.parametrize(
    ("rule", "looks"), [((5, 5, 20), [5, 10, 15, 20]), ((3, 4, 8), [3, 7, 8]), ((5, 1, 5), [5])]
)
def test_seeds_by_rule_say_when_results_are_looked_at(
    rule: tuple[int, int, int], looks: list[int]
) -> None:
    first, more, at_most = rule
    study = read_study(declared(seeds={"first": first, "more": more, "at_most": at_most}))
    assert (study.seeds, study.looks) == (list(range(at_most)), looks)
    assert len(study.cells) == first * len(ARMS)


def test_a_grid_grows_by_its_own_ratio() -> None:
    tuning = Tuning(grid=[1e-3, 3e-3, 1e-2])
    assert tuning.grown(low=False, high=True).grid == [1e-3, 3e-3, 1e-2, 3.3e-2]
    assert tuning.grown(low=True, high=False).grid == [3.3e-4, 1e-3, 3e-3, 1e-2]
    assert tuning.grown(low=False, high=False) == tuning


def test_each_arm_gets_a_trial_for_each_value_and_tuning_seed() -> None:
    study = read_study(declared(tune={"grid": [1e-3, 3e-3, 1e-2], "seeds": [8, 9]}))
    assert study.tune is not None
    assert study.tune.trials == 6


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_studies_are_sound_and_say_what_to_expect(path: Path) -> None:
    text = path.read_text()
    study = read_study(yaml.safe_load(text))
    assert isinstance(study, Study)
    assert study.name == path.stem
    # A ladder repeats its comparison at each rung, and scores of tasks lie far apart.
    assert len(study.seeds) >= (3 if study.ladder or MEASURES[study.primary].answers else 5)
    assert "small run should show" in " ".join(text.replace("#", " ").split())
    assert study.published
    contexts = [claim for claim in study.published if claim.context]
    assert {arm for claim in contexts for arm in claim.arms} <= study.arms.keys()
    for claim in [claim for claim in study.published if claim not in contexts]:
        assert set(claim.arms) <= study.arms.keys()
        assert claim.order or claim.contrast in study.compared or claim.measure != LOSS
        assert claim.expect != "equivalent" or study.margin or claim.range
        assert claim.measure == LOSS or study.tune
        assert claim.why and all(source.model or source.value for source in claim.sources)


def test_the_published_range_is_the_span_of_the_sources_unless_it_is_given() -> None:
    more = [*CLAIM["sources"], {"source": "B", "read": "p. 2", "difference": 0.07}]
    [claim] = read_study(declared(published=[{**CLAIM, "sources": more}])).published
    assert (claim.span, claim.published) == ((0.02, 0.07), "+0.02 to +0.07")
    [claim] = read_study(declared(published=[{**CLAIM, "range": [0, 0.1]}])).published
    assert (claim.span, claim.rule) == ((0, 0.1), "other - base: worse, 0 to 0.1 nats/token")
    [claim] = read_study(declared(published=[{**CLAIM, "unit": "bits/byte"}])).published
    assert claim.published == "+0.02 bits/byte"
