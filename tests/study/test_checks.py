"""What is seen of an arm before it trains."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lm_experiments.study import checks
from lm_experiments.study.checks import Start, look_at_start, look_at_starts, warnings
from lm_experiments.study.plan import checked, planned
from lm_experiments.training.config import RunConfig

DEEP = ("model.n_layers=10", "model.d_model=64", "model.d_ff=256")


def values(text_file: Path, cache_dir: Path, **model: Any) -> dict[str, Any]:
    return {
        "model": {"d_model": 32, "n_layers": 2, "n_heads": 2, "context_length": 16, **model},
        "data": {"name": "text", "path": str(text_file)},
        "tokenizer": {"name": "bytes"},
        "optimizer": {"name": "adamw"},
        "schedule": {"name": "cosine"},
        "trainer": {"max_steps": 10},
        "logger": {"name": "none"},
        "cache_dir": str(cache_dir),
        "code_paths": [],
        "arm": "a",
        "name": "n",
    }


def config(text_file: Path, cache_dir: Path, **model: Any) -> RunConfig:
    return checked(values(text_file, cache_dir, **model))


def test_a_sane_start_is_near_what_its_initialisation_gives(
    text_file: Path, cache_dir: Path
) -> None:
    start = look_at_start("a", planned(config(text_file, cache_dir)))
    assert not start.fails
    assert start.expected is not None
    assert start.loss == pytest.approx(start.expected, abs=0.3)
    assert set(start.gradients) == {"block 0", "block 1", "other"}
    assert all(norm > 0 for norm in start.gradients.values())


def test_gated_layers_without_norms_fail_at_the_start(text_file: Path, cache_dir: Path) -> None:
    run = planned(
        config(text_file, cache_dir, norm={"name": "none"}, n_layers=10, d_model=64, d_ff=256)
    )
    assert look_at_start("a", run).fails
    ungated = {"name": "none"}
    shallow = planned(config(text_file, cache_dir, norm=ungated, ffn={"name": "silu"}))
    assert not look_at_start("a", shallow).fails


def test_arms_that_differ_in_what_comes_after_the_start_share_a_look(
    text_file: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, build = [], checks.build_model
    monkeypatch.setattr(checks, "build_model", lambda *a: built.append(a) or build(*a))
    given = values(text_file, cache_dir)
    arms = {
        "a": given,
        "lr": given | {"optimizer": {"name": "adamw", "lr": 0.1}},
        "steps": given | {"trainer": {"max_steps": 20}},
        "seed": given | {"seed": 1},
        "norm": values(text_file, cache_dir, norm={"name": "layernorm"}),
        "split": given | {"data": given["data"] | {"split_seed": 9}},
    }
    starts = look_at_starts({arm: planned(checked(own)) for arm, own in arms.items()})
    assert len(built) == 4
    assert starts["a"] is starts["lr"] is starts["steps"]
    others = [starts[arm] for arm in ("seed", "norm")]
    assert not any(starts["a"].is_as(other) for other in others)
    # A second look, by another model built alike, is the same bit for bit.
    assert starts["a"].is_as(look_at_start("a", planned(checked(given))))


def test_a_digest_tells_one_bit_and_one_name() -> None:
    gradients = {"a": torch.tensor([0.0, 1.0]), "b": torch.tensor(2.0)}
    digest = checks._digest(gradients)
    assert digest == checks._digest({"b": gradients["b"], "a": torch.tensor([-0.0, 1.0])})
    nearly = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert digest != checks._digest(gradients | {"a": torch.stack([torch.tensor(0.0), nearly])})
    assert digest != checks._digest({"b": gradients["a"], "a": gradients["b"]})
    assert digest != checks._digest({"a": gradients["a"]})


def test_a_start_that_is_no_number_equals_none() -> None:
    start = Start(1.0, None, {"other": float("nan")}, "d")
    assert not start.is_as(start)
    assert Start(1.0, None, {"other": 1.0}, "d").is_as(Start(1.0, 2.0, {"other": 1.0}, "d"))


def test_schedules_that_come_to_the_same_are_alike(text_file: Path, cache_dir: Path) -> None:
    given = values(text_file, cache_dir)
    one, other = ({"name": "cosine", "warmup_steps": steps} for steps in (None, 0))
    steps = {"name": "cosine", "warmup_steps": 1}
    configs = [checked(given | {"schedule": schedule}) for schedule in (one, other, steps)]
    longer = checked(given | {"trainer": {"max_steps": 20}})
    alike = [[checks._optimised_alike(a, b) for b in configs] for a in configs]
    expected = [[checks._factors(a) == checks._factors(b) for b in configs] for a in configs]
    assert alike == expected
    assert not checks._optimised_alike(configs[0], longer)


WARNED = {
    "no norm": ({"norm": {"name": "none"}, "n_layers": 6}, "without norms"),
    "reordered": ({"placement": {"name": "reordered"}}, "no QK-norm"),
    "sinusoidal": ({"position": {"name": "sinusoidal"}}, "sinusoidal"),
}


@pytest.mark.parametrize("case", WARNED)
def test_known_pitfalls_are_named(case: str, text_file: Path, cache_dir: Path) -> None:
    model, words = WARNED[case]
    [warning] = warnings(config(text_file, cache_dir, **model))
    assert words in warning
    assert warnings(config(text_file, cache_dir)) == []


def test_post_norm_without_warm_up_is_named(text_file: Path, cache_dir: Path) -> None:
    cold = values(text_file, cache_dir, placement={"name": "post"})
    assert warnings(checked(cold)) == []
    cold["schedule"] = {"name": "cosine", "warmup_steps": 0}
    [warning] = warnings(checked(cold))
    assert "post-norm without warm-up" in warning


def test_an_arm_of_a_plain_sweep_that_changes_nothing_is_named(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window as long as the context is none; one that is shorter is one."""
    words = ("-m", "model.attention.window=null,8,16", "model.dropout=0.1")
    answer = train(*words, "plan=true")
    assert answer.code == 0, answer.err
    warned = "warning: identical: changes nothing, as it starts just as 'window=null' (window=16)."
    assert warned in answer.out
    assert answer.out.count("changes nothing") == 1
    monkeypatch.setattr("lm_experiments.study.checks.SOUGHT_WEIGHTS", 100)
    assert "changes nothing" not in train(*words, "plan=true").out


@pytest.mark.parametrize(
    "axis", ["optimizer.lr=1e-3,1e-2", "model.dropout=0.1,0.2", "position=none,sinusoidal"]
)
def test_arms_that_change_something_are_not_named(axis: str, train: Callable[..., Any]) -> None:
    answer = train("-m", axis, "plan=true")
    assert answer.code == 0, answer.err
    assert "changes nothing" not in answer.out


def test_a_run_that_fails_at_init_burns_no_budget(train: Callable[..., Any]) -> None:
    answer = train("-m", "norm=none,rmsnorm", *DEEP, "trainer.max_steps=4", "name=deep")
    assert answer.code == 0, answer.err
    found = {}
    for path in Path("runs/deep").glob("*/result.json"):
        result = json.loads(path.read_text())
        found[result["arm"]] = result
    assert found["none"]["outcome"] == "failed-at-init"
    assert found["none"]["outcome_step"] == found["none"]["steps"] == 1
    assert found["rmsnorm"]["outcome"] == "ok"
    assert "failed-at-init" in answer.out
