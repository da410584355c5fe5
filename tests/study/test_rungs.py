"""Ladders: the arms of a study at each rung, what they are compared with, and what is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.commands import SMALL
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode

from lm_experiments.conf_dir import conf_dir
from lm_experiments.errors import InputError
from lm_experiments.rundir.ladder import FIXED, MUP, TUNED_EACH, Ladder
from lm_experiments.rundir.study import Study, read_study
from lm_experiments.study import sweeper
from lm_experiments.study.choices import offer_choices
from lm_experiments.study.composer import Composer
from lm_experiments.study.expand import RunSpec, tuned_cells
from lm_experiments.study.plan import checked, plain, planned
from lm_experiments.study.preview import shown
from lm_experiments.study.rungs import expanded
from lm_experiments.training.config import RunConfig

SIZES = {"big": ["model.d_model=32"], "base": [], "middle": ["model.d_model=24"]}
GRID = {"grid": [1e-3, 3e-3, 1e-2]}


@pytest.fixture(scope="module")
def configured() -> Callable[[RunSpec], RunConfig]:
    """Compose a run of the smallest model, as a sweep does."""
    GlobalHydra.instance().clear()
    offer_choices()
    sweeper.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        composer = Composer(loader.load_configuration("train", [], RunMode.MULTIRUN), loader)
    return lambda spec: checked(plain(composer([*SMALL, "data.path=x", *spec.overrides])))


@pytest.fixture
def climbed(configured: Callable[[RunSpec], RunConfig]) -> Callable[..., tuple[Study, Ladder]]:
    """Expand a study of a ladder, whose other keys are given; return it with its ladder."""

    def call(ladder: dict[str, Any], *typed: str, **keys: Any) -> tuple[Study, Ladder]:
        arms = {"base": [], "NoPE": ["position=none"]}
        values = {"name": "it", "baseline": "base", "arms": arms, "ladder": ladder, **keys}
        study = read_study(values)
        assert study.ladder is not None
        overrides = OverridesParser.create().parse_overrides(list(typed))
        study = expanded(study, study.ladder, overrides, configured)
        assert study.ladder is not None
        return study, study.ladder

    return call


def claim(contrast: list[str]) -> dict[str, Any]:
    source = {"source": "A 2020", "read": "table 1"}
    return {"claim": "worse", "expect": "worse", "contrast": contrast, "sources": [source]}


def test_each_arm_at_each_budget_compared_within_it(climbed: Callable[..., Any]) -> None:
    arms = {"base": [], "NoPE": ["position=none"], "again": []}
    study, ladder = climbed(
        {"steps": [75, 300, 900]},
        arms=arms,
        controls=["again"],
        contrasts=[["NoPE", "base"]],
        overrides=["trainer.max_steps=300"],
        published=[claim(["NoPE", "base"])],
    )
    assert list(study.arms) == [
        f"{arm} at {steps} steps" for steps in (75, 300, 900) for arm in arms
    ]
    assert study.contrasts == [[f"NoPE at {n} steps", f"base at {n} steps"] for n in (75, 300, 900)]
    assert study.controls == [f"again at {n} steps" for n in (75, 300, 900)]
    assert (study.baseline, study.declared_baseline) == ("base at 900 steps", "base")
    assert study.published[0].contrast == ["NoPE at 900 steps", "base at 900 steps"]
    assert [rung.label for rung in ladder.rungs] == ["75 steps", "300 steps", "900 steps"]
    assert ladder.rungs[0].arms["NoPE"] == "NoPE at 75 steps"
    assert (ladder.baseline, ladder.contrasts, ladder.rate) == ("base", [["NoPE", "base"]], FIXED)
    assert study.baseline_of("NoPE at 75 steps") == "base at 75 steps"
    # At its own steps, a study's arms are what they are without a ladder.
    assert study.arms["NoPE at 300 steps"] == ["position=none"]


def test_what_is_counted_in_steps_keeps_its_share_of_a_run(climbed: Callable[..., Any]) -> None:
    study, _ = climbed(
        {"steps": [30, 300, 900]},
        overrides=[
            "trainer.max_steps=300",
            "trainer.val_every=50",
            "trainer.log_every=10",
            "schedule=wsd",
            "schedule.warmup_steps=20",
            "diagnostics.every=20",
            "samples.every=150",
        ],
        arms={"base": [], "cold": ["schedule.warmup_steps=0"]},
    )
    assert study.arms["base at 30 steps"] == [
        "trainer.max_steps=30",
        "schedule.warmup_steps=2",
        "trainer.val_every=5",
        "trainer.log_every=1",
        "samples.every=15",
        "diagnostics.every=2",
    ]
    assert study.arms["base at 900 steps"] == [
        "trainer.max_steps=900",
        "schedule.warmup_steps=60",
        "trainer.val_every=150",
        "trainer.log_every=30",
        "samples.every=450",
        "diagnostics.every=60",
    ]
    assert study.arms["cold at 900 steps"][0] == "schedule.warmup_steps=0"


def test_rungs_that_are_not_declared_follow_from_the_study(climbed: Callable[..., Any]) -> None:
    typed = "trainer.max_steps=40"
    _, ladder = climbed({"by": "budget"}, typed)
    assert ladder.steps == [10, 40, 160]
    _, ladder = climbed({"by": "size"}, typed)
    assert ladder.sizes == {
        f"width {16 * factor}": [
            f"model.d_model={16 * factor}",
            f"model.n_heads={2 * factor}",
            f"model.d_ff={32 * factor}",
        ]
        for factor in (1, 2, 4)
    }
    assert [rung.label for rung in ladder.rungs] == ["width 16", "width 32", "width 64"]


def test_arms_of_unlike_steps_keep_their_share_of_each_budget(climbed: Callable[..., Any]) -> None:
    arms = {"base": [], "small": ["data.batch_size=8", "trainer.max_steps=600"]}
    study, ladder = climbed(
        {"steps": [100, 300, 900]},
        arms=arms,
        overrides=["trainer.max_steps=300", "data.batch_size=16"],
    )
    assert [rung.label for rung in ladder.rungs] == [
        "0.0256M tokens",
        "0.0768M tokens",
        "0.2304M tokens",
    ]
    assert study.arms["small at 0.0256M tokens"][:2] == [
        "data.batch_size=8",
        "trainer.max_steps=200",
    ]


def test_sizes_ascend_whatever_their_order(climbed: Callable[..., Any]) -> None:
    study, ladder = climbed({"by": "size", "sizes": SIZES})
    assert [rung.label for rung in ladder.rungs] == ["base", "middle", "big"]
    assert study.arms["NoPE at base"] == ["position=none"]
    assert study.arms["NoPE at big"] == ["position=none", "model.d_model=32"]


def test_a_size_by_its_name_keeps_the_context_of_the_arm(climbed: Callable[..., Any]) -> None:
    sizes = ["tiny", "nanogpt_cpu", "small"]
    arms = {"base": [], "long": ["model.context_length=32"]}
    study, _ = climbed({"by": "size", "sizes": sizes}, arms=arms)
    assert study.arms["base at small"] == ["size=small", "model.context_length=16"]
    assert study.arms["long at small"] == ["model.context_length=32", "size=small"]


def test_the_smallest_size_is_the_base_of_mup(climbed: Callable[..., Any]) -> None:
    by_size = {"by": "size", "sizes": SIZES}
    study, ladder = climbed(by_size, overrides=["init=mup"])
    assert ladder.rate == MUP
    base = ["model.init.base_width=16", "model.init.base_heads=2"]
    assert all(base == words[:2] for words in study.arms.values())
    study, _ = climbed(by_size, overrides=["init=mup", "model.head_width=8"])
    assert study.arms["base at big"] == [base[0], "model.d_model=32"]
    for typed in ({"overrides": ["init=mup", "model.init.base_width=8"]}, {}):
        study, _ = climbed(by_size, *([] if typed else ["init=mup", f"{base[0]}0"]), **typed)
        assert study.arms["base at big"] == ["model.d_model=32"]
    _, ladder = climbed(by_size, arms={"base": [], "muP": ["init=mup"]})
    assert ladder.rate == FIXED
    study, ladder = climbed({"steps": [1, 2, 3]}, overrides=["init=mup"])
    assert ladder.rate == FIXED and study.arms["base at 3 steps"] == []


def test_tokens_are_a_multiple_of_the_parameters(
    climbed: Callable[..., Any],
    configured: Callable[[RunSpec], RunConfig],
    text_file: Path,
    tmp_path: Path,
) -> None:
    shared = [f"data.path={text_file}", f"runs_dir={tmp_path}", "data.batch_size=8"]
    arms = {"base": [], "half": ["data.batch_size=4", "model.d_ff=48"]}
    by_tokens = {"by": "tokens_per_parameter", "sizes": SIZES, "ratio": 2}
    study, ladder = climbed(by_tokens, overrides=shared, arms=arms)
    for rung in ladder.rungs:
        base, half = (
            planned(configured(RunSpec((*shared, *study.arms[rung.arms[arm]])))) for arm in arms
        )
        # The nearest number of whole steps; the vocabulary is that of the text.
        assert abs(base.config.tokens - 2 * base.ledger.parameters) <= 64
        assert abs(half.config.tokens - 2 * base.ledger.parameters) <= 32
        assert half.ledger.parameters != base.ledger.parameters
    assert [rung.label for rung in ladder.rungs] == ["base", "middle", "big"]


def test_tuning_is_at_each_rung_and_at_the_best_value_of_its_baseline(
    climbed: Callable[..., Any],
) -> None:
    study, ladder = climbed({"steps": [1, 2, 3]}, tune=GRID, seeds=[0])
    assert ladder.rate == TUNED_EACH
    best = {arm: float(number) for number, arm in enumerate(study.arms)}
    cells = {(arm, role): setting for arm, _, role, setting in tuned_cells(study, best)}
    for rung in ladder.rungs:
        value = best[rung.arms["base"]]
        assert cells[rung.arms["NoPE"], "report"] == {"optimizer.lr": value}
        assert cells[rung.arms["NoPE"], "tuned"] == {"optimizer.lr": value + 1}


def test_what_the_ladder_sets_too_is_refused(climbed: Callable[..., Any]) -> None:
    wide = {"base": [], "wide": ["model.d_model=64"]}
    with pytest.raises(InputError, match=r"Arm 'wide' sets model\.d_model, which rung 'big'"):
        climbed({"by": "size", "sizes": SIZES}, arms=wide)
    with pytest.raises(InputError, match=r"max_steps=9 changes nothing .* study\.ladder\.steps="):
        climbed({"steps": [1, 2, 3]}, "trainer.max_steps=9")
    with pytest.raises(InputError, match=r"max_steps=9 changes nothing .* study\.ladder\.ratio="):
        climbed({"by": "tokens_per_parameter"}, "trainer.max_steps=9")


PAIR = """
name: pair
baseline: base
arms: {base: [], NoPE: [position=none]}
seeds: [0]
"""


def words(text_file: Path) -> list[str]:
    """Return those of the smallest model, but for its steps."""
    own = [word for word in SMALL if not word.startswith(("trainer.max_steps", "runs_from"))]
    return [*own, f"data.path={text_file}"]


def test_the_plan_tells_what_each_rung_costs(train: Callable[..., Any], text_file: Path) -> None:
    Path("pair.yaml").write_text(PAIR)
    command = ("-m", "study=pair.yaml", "ladder=budget", "trainer.max_steps=8", "plan=true")
    plan = train(*command, *words(text_file), small=False)
    assert plan.code == 0, plan.text
    assert "ladder by budget, 3 rungs; the learning rate is the same at every rung." in plan.out
    assert " 2 steps, 512 tokens, 2 runs, 5% of the compute" in plan.out
    assert " 32 steps, 8,192 tokens, 2 runs, 76% of the compute" in plan.out
    assert "6 runs: 6 arms, seed 0; 0 done already, 6 to train" in plan.out
    # One in the head, and one at each rung.
    assert plan.out.count(" baseline ") == 1 + 3


def test_a_long_plan_lists_the_arms_of_the_largest_rung(climbed: Callable[..., Any]) -> None:
    study, ladder = climbed({"steps": [1, 2, 3]})
    references = {arm: study.baseline_of(arm) for arm in study.arms}
    assert shown(references, study) == references
    arms = {"base": [], **{f"arm {n}": [f"model.dropout=0.{n}"] for n in range(1, 9)}}
    study, ladder = climbed({"steps": [1, 2, 3]}, arms=arms)
    references = {arm: study.baseline_of(arm) for arm in study.arms}
    assert list(shown(references, study)) == list(ladder.rungs[-1].arms.values())


@pytest.mark.slow
def test_a_rung_that_is_added_is_trained_alone(train: Callable[..., Any], text_file: Path) -> None:
    Path("pair.yaml").write_text(PAIR)
    pair = partial(train, "-m", "study=pair.yaml", *words(text_file), small=False)
    for steps, told in (("1,2,3", "6 to train"), ("1,2,3,4", "6 done already, 2 to train")):
        answer = pair("ladder=budget", f"study.ladder.steps=[{steps}]")
        assert answer.code == 0, answer.text
        assert told in answer.out
    [folder] = Path("runs").iterdir()
    assert folder.name.startswith("pair_ladder-budget")
    record = json.loads((folder / "sweep.json").read_text())
    assert record["study"]["baseline"] == "base at 4 steps"
    steps = {
        row["arm"]: json.loads((folder / row["directory"] / "result.json").read_text())["steps"]
        for row in record["runs"]
    }
    assert steps == {f"{arm} at {n} steps": n for n in (1, 2, 3, 4) for arm in ("base", "NoPE")}

    # What a rung trains is the run that is trained without a ladder.
    alone = pair("trainer.max_steps=3", "name=alone")
    assert alone.code == 0, alone.text
    assert f"2 taken from {folder}" in alone.out


def test_a_ladder_belongs_to_a_study(refused: Callable[..., str]) -> None:
    assert "ladder=size changes a study; choose one" in refused("train", "-m", "ladder=size")
    told = refused("train", "-m", "study=norm_type", "ladder=sizes")
    assert "study.ladder.by=sizes is not known; it can be budget, size," in told
