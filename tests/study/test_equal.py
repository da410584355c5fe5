"""Arms get as many parameters, tokens, FLOPs or seconds as the baseline, or a clear error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.commands import SMALL, Answer

from lm_experiments.benchmark.rounds import Timing
from lm_experiments.errors import InputError
from lm_experiments.model import count
from lm_experiments.rundir.sweeps import read_sweep
from lm_experiments.study import equal
from lm_experiments.study.equal import Equaliser, check_alone
from lm_experiments.study.expand import RunSpec
from lm_experiments.study.plan import checked, with_vocabulary
from lm_experiments.training.config import RunConfig

Configure = Callable[..., RunConfig]
SPEC = RunSpec(common=("size=tiny",))


@pytest.fixture
def configure(text_file: Path, cache_dir: Path) -> Configure:
    """Compose a small run: keys of the trainer, and of the model by ``model``."""

    def build(model: Mapping[str, Any] | None = None, warmup: int | None = None, **trainer: Any):
        sizes = {"d_model": 32, "n_layers": 2, "n_heads": 4, "context_length": 16, "d_ff": 96}
        return checked(
            {
                "model": {**sizes, **(model or {})},
                "data": {"name": "text", "path": str(text_file)},
                "tokenizer": {"name": "bytes"},
                "optimizer": {"name": "adamw"},
                "schedule": {"name": "cosine", "warmup_steps": warmup},
                "trainer": {"max_steps": 1000, **trainer},
                "logger": {"name": "none"},
                "cache_dir": str(cache_dir),
                "code_paths": [],
                "arm": "a",
                "name": "n",
            }
        )

    return build


def equaliser(baseline: RunConfig, remote: bool = False, **times: float) -> Equaliser:
    return Equaliser(lambda arm: ["ffn=relu"], lambda words: baseline, times, remote)


def parameters(config: RunConfig) -> int:
    return count(with_vocabulary(config).model).parameters


@pytest.mark.parametrize(
    "model",
    [
        {"attention": {"name": "multi_query"}},
        {"position": {"name": "learned"}},
        {"tie_embeddings": True},
        {"n_layers": 1},
        {"norm": {"name": "layernorm"}, "bias": True, "ffn": {"name": "relu"}},
    ],
    ids=str,
)
def test_what_an_arm_saves_goes_to_its_feed_forward(
    configure: Configure, model: dict[str, Any]
) -> None:
    baseline = configure({"match": "total"})
    own = configure({"match": "total", **model})
    found = equaliser(baseline)(own, SPEC)
    assert abs(parameters(own) / parameters(baseline) - 1) > 0.005
    assert parameters(found) == pytest.approx(parameters(baseline), rel=0.01)
    assert found.trainer == own.trainer


def test_an_arm_that_has_as_many_already_keeps_its_width(configure: Configure) -> None:
    baseline = configure({"match": "total"})
    assert equaliser(baseline)(baseline, SPEC).model.ffn_width is None
    typed = configure({"match": "total", "attention": {"name": "multi_query"}, "ffn_width": 40})
    assert equaliser(baseline)(typed, SPEC).model.ffn_width == 40


def test_what_cannot_be_reached_is_refused_with_a_tolerance_that_reaches_it(
    configure: Configure,
) -> None:
    baseline = configure({"match": "total"})
    own = configure({"match": "total", "d_model": 64})
    with pytest.raises(InputError, match=r"Arm 'a' cannot match the baseline's 37,\d+ para") as bad:
        equaliser(baseline)(own, SPEC)
    tolerance = re.search(r"match_tolerance=(\S+), or another size", str(bad.value))
    assert tolerance
    allowed = replace(own, model=replace(own.model, match_tolerance=float(tolerance[1])))
    assert equaliser(baseline)(allowed, SPEC).model.ffn_width == 1


def test_a_cheaper_model_makes_more_steps_for_the_same_flops(configure: Configure) -> None:
    baseline = configure(equal="flops", warmup=100)
    shallow = configure({"n_layers": 1}, equal="flops", warmup=100)
    found = equaliser(baseline)(shallow, SPEC)
    spent = [
        count(with_vocabulary(config).model).training_flops_per_token * config.tokens
        for config in (baseline, found)
    ]
    assert found.trainer.max_steps > 1200
    assert spent[1] == pytest.approx(spent[0], rel=0.5 / found.trainer.max_steps)
    ratio = found.trainer.max_steps / 1000
    assert found.schedule.warmup_steps == round(100 * ratio)
    assert equaliser(baseline)(configure(equal="flops"), SPEC).schedule.warmup_steps is None


def test_equal_tokens_for_another_context(configure: Configure) -> None:
    baseline, own = configure(equal="tokens"), configure({"context_length": 32}, equal="tokens")
    found = equaliser(baseline)(own, SPEC)
    assert (found.trainer.max_steps, found.tokens) == (500, baseline.tokens)


def test_steps_stay_as_typed_unless_something_else_is_to_be_equal(configure: Configure) -> None:
    own = configure({"n_layers": 1})
    assert equaliser(configure())(own, SPEC) is own


def times(ratio: float) -> Callable[..., list[Timing]]:
    def measured(turns: Mapping[str, Any], rounds: int) -> list[Timing]:
        assert list(turns) == ["baseline", "arm"]
        return [Timing("baseline", 1, 1, 1, 1), Timing("arm", ratio, ratio, ratio, ratio)]

    return measured


def never(*arguments: Any) -> Any:
    raise AssertionError("steps were timed again")


def test_seconds_follow_from_steps_timed_once_for_a_sweep(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline, own = configure(equal="seconds"), configure({"n_layers": 1}, equal="seconds")
    monkeypatch.setattr(equal, "measure", times(0.8))
    first = equaliser(baseline)
    found = first(own, SPEC)
    assert found.trainer.max_steps == 1250
    assert first.step_time(found) == 0.8
    monkeypatch.setattr(equal, "measure", never)
    again = equaliser(baseline, remote=True, **first.step_times)
    assert again(replace(own, seed=7), SPEC).trainer.max_steps == 1250
    # A control is the baseline's own model, which is not timed against itself.
    assert again(replace(baseline, control="again"), SPEC).trainer.max_steps == 1000


def test_steps_are_really_timed(configure: Configure) -> None:
    model = {"d_model": 64, "n_layers": 4}
    baseline, own = (
        configure(model, equal="seconds", threads=1),
        configure({**model, "n_layers": 12}, equal="seconds", threads=1),
    )
    assert equaliser(baseline)(own, SPEC).trainer.max_steps < 700


def test_steps_are_not_timed_for_other_machines(configure: Configure) -> None:
    baseline, own = configure(equal="seconds"), configure({"n_layers": 1}, equal="seconds")
    with pytest.raises(InputError, match=r"times steps on this machine, .*equal=flops"):
        equaliser(baseline, remote=True)(own, SPEC)


def test_an_arm_sets_no_steps_where_they_follow(configure: Configure) -> None:
    own = configure(equal="flops", max_steps=10)
    with pytest.raises(InputError, match=r"Arm 'a' sets trainer.max_steps=10, .*baseline's 1000"):
        equaliser(configure())(own, SPEC)


def test_one_run_has_nothing_to_be_equal_to(
    refused: Callable[..., str], configure: Configure, text_file: Path
) -> None:
    with pytest.raises(InputError, match=r"^trainer.equal=flops compares arms with a baseline"):
        check_alone(configure(equal="flops"))
    check_alone(configure())
    words = ("train", *SMALL, f"data.path={text_file}", "match=total")
    assert "model.match=total compares arms with a base" in refused(*words)


def steps_of(folder: Path) -> dict[str, int]:
    results = [json.loads(path.read_text()) for path in folder.glob("*/result.json")]
    return {f"{found['arm']} {found['seed']}": found["steps"] for found in results}


def test_the_plan_says_how_nearly_arms_are_equal(
    train: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equal, "measure", times(0.75))
    words = ("attention=causal,multi_query", "match=total", "trainer.equal=seconds")
    answer = train("-m", *words, "plan=true")
    assert re.search(r"multi_query .* 1,024 +4 +\d", answer.out), answer.text
    assert "match=total: parameters of arms that are compared differ by 0." in answer.out
    assert "timed seconds of training differ from the baseline's by 0.00% at most" in answer.out


@pytest.mark.slow
def test_a_sweep_keeps_its_steps_and_its_table_says_what_is_equal(
    train: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equal, "measure", times(0.75))
    words = (
        "-m",
        "attention=causal,multi_query",
        "match=total",
        "trainer.equal=seconds",
        "name=it",
    )
    answer = train(*words)
    assert answer.code == 0, answer.text
    folder = Path("runs/it")
    assert steps_of(folder) == {"causal 0": 3, "multi_query 0": 4}
    record = read_sweep(folder)
    assert record and sorted(record.step_times.values()) == [0.75, 1.0]
    monkeypatch.setattr(equal, "measure", never)
    # The first arm of the sweep stays the baseline, also where it is typed later.
    again = train("-m", "attention=multi_query,causal", *words[2:], "seed=0,1")
    assert again.code == 0, again.text
    assert {arm[:-2]: steps for arm, steps in steps_of(folder).items()} == {
        "causal": 3,
        "multi_query": 4,
    }
    assert len(steps_of(folder)) == 4
    table = (folder / "table.md").read_text()
    assert "Compared at equal parameters and timed seconds: multi_query (tokens +33.3 %" in table
    assert "the runs differ in tokens" not in table


def test_words_of_the_baseline_win_over_what_all_share(configure: Configure) -> None:
    composed: list[Sequence[str]] = []
    baseline = configure(equal="flops")

    def compose(words: Sequence[str]) -> RunConfig:
        composed.append(words)
        return baseline

    spec = RunSpec(common=("ffn=silu", "size=tiny"))
    given = Equaliser(lambda arm: ["ffn=relu"], compose, {}, remote=False)
    given(configure({"n_layers": 1}, equal="flops"), spec)
    given(configure({"n_layers": 1}, equal="flops"), spec)
    assert composed == [("ffn=relu", "size=tiny")]


def test_one_arm_alone_can_have_as_many_seconds(
    train: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equal, "measure", times(0.75))
    arms = "{causal: [], one: [attention=multi_query, trainer.equal=seconds]}"
    Path("one.yaml").write_text(f"name: one\nbaseline: causal\nseeds: [0]\narms: {arms}\n")
    answer = train("-m", "study=one.yaml", "plan=true")
    assert re.search(r"\n *one .* 1,024 +4 +\d", answer.out), answer.text
    assert "timed seconds of training differ from the baseline's by 0.00% at most" in answer.out
