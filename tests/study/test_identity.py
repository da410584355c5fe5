"""What makes a run another run, and what does not."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from harness.runs import CHOICES

from lm_experiments.model import Choice
from lm_experiments.study.identity import (
    arm_label,
    arm_labels,
    arm_overrides,
    config_hash,
    differences,
    directory_name,
    hashed_values,
    sweep_name,
)
from lm_experiments.training.config import RunConfig, plain_values, run_config
from lm_experiments.training.logger_config import WandbConfig

VALUES: dict[str, Any] = {
    **CHOICES,
    "model": {**CHOICES["model"], "norm": {"name": "rmsnorm", "eps": 1e-5}},
}


@pytest.fixture
def config() -> RunConfig:
    return run_config(VALUES)


def changed(config: RunConfig, section: str, **values: Any) -> RunConfig:
    part = dataclasses.replace(getattr(config, section), **values)
    return dataclasses.replace(config, **{section: part})


def digest(config: RunConfig, data: str = "d", precision: str = "32-true") -> str:
    return config_hash(config, data, precision)


def test_what_determines_the_result_changes_the_hash(config: RunConfig) -> None:
    others = [
        dataclasses.replace(config, seed=1),
        changed(config, "model", d_model=64),
        changed(config, "model", norm=Choice("layernorm")),
        changed(config, "model", ffn_width=7),
        changed(config, "model", dropout=0.1),
        dataclasses.replace(config, control="again"),
        changed(config, "optimizer", lr=2e-3),
        changed(config, "schedule", warmup_steps=3),
        changed(config, "trainer", max_steps=11),
        changed(config, "data", batch_size=4),
    ]
    digests = [digest(other) for other in [config, *others]]
    digests += [digest(config, data="e"), digest(config, precision="bf16-mixed")]
    assert len(set(digests)) == len(digests)


def test_what_only_places_or_watches_a_run_does_not(config: RunConfig) -> None:
    same = [
        dataclasses.replace(config, name="x", arm="y", runs_dir="z", cache_dir="c", compile=True),
        dataclasses.replace(config, logger=WandbConfig(project="p")),
        changed(config, "model", d_ff=513, ffn_width=config.model.width),
        changed(config, "trainer", threads=1, log_every=3, val_every=2, micro_batch_size=1),
        changed(config, "data", eval_batch_size=1),
    ]
    assert {digest(other) for other in same} == {digest(config)}


def test_a_key_of_a_later_version_is_hashed_where_it_is_used(config: RunConfig) -> None:
    values = hashed_values(config, "d", "32-true")
    assert not {"optimizer.decay", "optimizer.beta2_tokens"} & values.keys()
    used = changed(config, "optimizer", beta2_tokens=4096)
    assert hashed_values(used, "d", "32-true") == {**values, "optimizer.beta2_tokens": 4096}
    assert arm_overrides(["optimizer.beta2_tokens=4096"]) == ["optimizer.beta2_tokens=4096"]


def test_a_configuration_survives_being_written_and_read(config: RunConfig) -> None:
    values = plain_values(config)
    assert plain_values(run_config(values)) == values
    assert digest(run_config(values)) == digest(config)


def test_labels_and_names() -> None:
    assert arm_label(["placement=pre", "ffn=relu", "model.position.theta=5e4"]) == (
        "pre relu theta=5e4"
    )
    assert arm_label([]) == "baseline"
    assert directory_name("pre relu", 3, "0123456789ab") == "pre-relu-s3-01234567"
    assert sweep_name(["placement", "ffn", "seed"], []) == "placement-ffn"
    assert sweep_name(["optimizer.lr"], ["trainer.max_steps=9"]) == "lr_max_steps-9"
    assert sweep_name(["placement"], ["optimizer.lr=0.01"]) == "placement_lr-0.01"
    assert sweep_name(["placement"], ["optimizer.weight_decay=0.01"]) == (
        "placement_weight_decay-0.01"
    )
    assert len(sweep_name(["a"], ["b=" + "c" * 300])) <= 40
    assert arm_overrides(["seed=1", "logger=none", "logger.mode=offline", "ffn=relu"]) == [
        "ffn=relu"
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("optimizer.eps=1e-6", "model.norm.eps=1e-6"),
        ("data.path=a/b.txt", "data.path=a-b.txt"),
        ("ffn=relu", "norm=relu"),
        ("data.path=" + "c" * 300, "data.path=" + "c" * 299 + "d"),
        ("model.d_model=12", "model.d_model=1"),
    ],
)
def test_sweeps_that_fix_something_else_have_another_name(one: str, other: str) -> None:
    names = [sweep_name(["placement"], [word]) for word in (one, other)]
    assert names[0] != names[1]
    assert all(re.fullmatch(r"placement_[\w.-]{1,30}", name) for name in names)


@pytest.mark.parametrize("arm", ["lr=1e-3", "a/b c", "../../etc", "naïve ünï"])
def test_directory_names_need_no_quotes(arm: str) -> None:
    name = directory_name(arm, 0, "0" * 64)
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@pytest.mark.parametrize(
    ("word", "makes_arm"),
    [
        ("ffn=relu", True),
        ("arch=gpt2", True),
        ("model.d_ff=64", True),
        ("match=none", True),
        ("+model.norm.eps=1e-6", True),
        ("data.path=a.txt", True),
        ("tokenizer.path=a.json", True),
        ("trainer.precision=32-true", True),
        ("my_group=mine", True),
        ("compile=false", False),
        ("plan=true", False),
        ("retries=1", False),
        ("on_failure=stop", False),
        ("resources.gpus=0.5", False),
        ("ray.address=auto", False),
        ("hydra/launcher=ray", False),
        ("trainer.threads=1", False),
        ("data.eval_batch_size=4", False),
        ("logger=none", False),
        ("logger.mode=offline", False),
        ("seed=1", False),
        ("control=again", True),
        ("name=mine", False),
    ],
)
def test_what_makes_another_arm(word: str, makes_arm: bool) -> None:
    assert arm_overrides([word]) == ([word] if makes_arm else [])


@pytest.mark.parametrize(
    ("arms", "labels"),
    [
        ([["ffn=relu"], ["ffn=silu"]], ["relu", "silu"]),
        ([["control=a"], ["control=b"]], ["a", "b"]),
        (
            [["data.path=a/input.txt"], ["data.path=b/input.txt"], ["data.path=b/other.txt"]],
            ["data.path=a/input.txt", "data.path=b/input.txt", "path=other.txt"],
        ),
        ([["x=a b", "y=c"], ["x=a", "y=b c"]], ["x=a b y=c", "x=a y=b c"]),
        ([["ffn=relu"], ["ffn=relu"]], ["relu", "relu"]),
        (
            [["data.path=/d/a/x/t.txt"], ["data.path=/d/b/x/t.txt"]],
            ["data.path=a/x/t.txt", "data.path=b/x/t.txt"],
        ),
    ],
)
def test_labels_grow_until_they_differ(arms: list[list[str]], labels: list[str]) -> None:
    assert arm_labels(arms) == labels


def test_what_differs_is_named_before_what_follows_from_it() -> None:
    one = {"seed": 0, "data_hash": "d" * 64, "optimizer.lr": 0.1}
    other = {**one, "data_hash": "e" * 64, "optimizer.lr": 0.2}
    assert differences(one, other) == "optimizer.lr: 0.1 and 0.2; data_hash: dddddddd and eeeeeeee"
