"""Which runs may stand in one table, and what is said of those that may not."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import SweepFactory, failed, result_of, write_run
from synthetic_studies import StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import build_table, collect
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.comparable import Settings, mixed_settings
from lm_experiments.report.table.warnings import warnings
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, read_sweep, write_sweep
from lm_experiments.study.identity import hashed_values
from lm_experiments.study.keys import all_keys
from lm_experiments.training.config import run_config

CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("data_hash", {"data_hash": "e" * 64}),
    ("code", {"commit": "b" * 40}),
    ("code", {"dirty": True}),
    ("eval_context", {"eval_context": 256}),
    ("tokenizer_hash", {"tokenizer_hash": "1" * 64}),
    ("val_tokens", {"val_tokens": 5}),
    ("tokens", {"tokens": 5}),
]


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_runs_that_differ_are_refused_with_their_names(
    study: StudyFactory, name: str, change: dict[str, Any]
) -> None:
    study.changes["silu", 1] = change
    root = study.whole()
    with pytest.raises(InputError) as caught:
        build_table(collect(root))
    told = str(caught.value)
    assert f"differ in {name} (" in told
    assert "silu-s1-" in told
    assert "--allow-mixed" in told
    table = build_table(collect(root), allow_mixed=True)
    assert any(f"differ in {name}: " in line for line in warnings(table))


def test_all_differences_are_told_at_once(study: StudyFactory) -> None:
    study.changes["silu", 1] = {"commit": "b" * 40, "data_hash": "e" * 64}
    with pytest.raises(InputError, match=r"data_hash \(.*; and in code \("):
        build_table(collect(study.whole()))


def test_a_failed_run_of_other_code_is_refused_and_of_a_shorter_budget_is_not(
    sweep: SweepFactory,
) -> None:
    sweep.done("a", {0: 3.1})
    sweep.run("b", result=failed("b", 0, "E", "x", tokens=3))
    build_table(collect(sweep.plan()))
    sweep.run("c", result=failed("c", 0, "E", "x", commit="b" * 40))
    with pytest.raises(InputError, match="code"):
        build_table(collect(sweep.plan()))


@pytest.mark.parametrize(
    ("override", "change"),
    [
        ("trainer.max_steps=500", {"tokens": 2048000, "steps": 500}),
        ("data.batch_size=4", {"tokens": 2048000}),
        ("size=small", {"tokens": 5, "val_tokens": 40000}),
        ("data=text", {"data_hash": "e" * 64, "val_tokens": 3}),
    ],
)
def test_what_an_arm_overrides_it_differs_in_on_purpose(
    study: StudyFactory, override: str, change: dict[str, Any]
) -> None:
    study.arms["other"] = [override]
    study.changes = {("other", seed): change for seed in study.seeds}
    lines = warnings(build_table(collect(study.whole())))
    assert lines
    assert all("as their arms declare" in line for line in lines)


@pytest.mark.parametrize(
    ("override", "change"),
    [
        ("data.batch_size=4", {"data_hash": "e" * 64}),
        ("trainer.max_steps=500", {"commit": "b" * 40}),
        ("position=none", {"tokens": 5}),
        # More context makes the same tokens easier, also where that is what the arm is about.
        ("model.context_length=256", {"eval_context": 256}),
    ],
)
def test_an_override_excuses_only_what_it_changes(
    study: StudyFactory, override: str, change: dict[str, Any]
) -> None:
    study.arms["other"] = [override]
    study.changes = {("other", seed): change for seed in study.seeds}
    with pytest.raises(InputError, match="differ in"):
        build_table(collect(study.whole()))


def test_runs_of_one_arm_must_agree_whatever_it_overrides(study: StudyFactory) -> None:
    study.arms["other"] = ["trainer.max_steps=500"]
    study.changes["other", 0] = {"tokens": 5}
    with pytest.raises(InputError, match="tokens"):
        build_table(collect(study.whole()))


def test_different_tokenizers_are_compared_by_bits_per_byte(study: StudyFactory) -> None:
    study.arms["bytes"] = ["tokenizer=bytes"]
    change = {"tokenizer_hash": "1" * 64, "data_hash": "e" * 64, "val_tokens": 99}
    study.changes = {
        ("bytes", seed): {**change, "bits_per_byte": 1.4 + seed / 1000} for seed in study.seeds
    }
    study.losses = {("bytes", seed): 1.0 for seed in study.seeds}
    table = build_table(collect(study.whole()))
    assert table.metric == "bits_per_byte"
    assert table.rows[0].arm == "bytes"
    assert table.rows[0].loss is not None
    assert table.rows[0].loss.mean == pytest.approx(1.402)
    assert table.plan.margin is None
    titles = [column.title for column in columns(table)]
    assert titles[1] == "bits/byte"
    assert any("nats per token are not comparable" in line for line in warnings(table))


def test_tokenizers_without_a_hash_are_told_apart_by_override_and_data(
    sweep: SweepFactory,
) -> None:
    sweep.run("bpe", result=result_of("bpe", 0, 3.0), overrides=("tokenizer=bpe",))
    other = result_of("chars", 0, 1.5, data_hash="e" * 64)
    sweep.run("chars", result=other, overrides=("tokenizer=chars",))
    assert build_table(collect(sweep.plan("tokenizer"))).metric == "bits_per_byte"


def test_code_that_is_dirty_everywhere_is_a_note(sweep: SweepFactory) -> None:
    from lm_experiments.report.table.notes import DIRTY, notes

    sweep.done("a", {0: 3.0, 1: 3.1}, dirty=True)
    sweep.done("b", {0: 3.0, 1: 3.1}, dirty=True)
    assert DIRTY in notes(build_table(collect(sweep.plan())))


def test_devices_and_threads_are_warned_about(study: StudyFactory) -> None:
    study.changes["silu", 1] = {"device": "cuda", "threads": 4, "compiled": True}
    study.changes["silu", 2] = {"compiled": False, "deterministic": True}
    study.changes["nope", 1] = {"deterministic": False}
    told = " ".join(warnings(build_table(collect(study.whole()))))
    assert "differ in device" in told
    assert "differ in threads" in told
    assert "differ in compiled" in told
    assert "differ in deterministic" in told


def test_trials_of_other_code_are_warned_about(study: StudyFactory) -> None:
    study.tuned = True
    study.changes["silu", 100] = {"commit": "b" * 40}
    told = " ".join(warnings(build_table(collect(study.whole()))))
    assert "some tuning trials have another commit: bbbbbbbbbbbb" in told


VALUES = {"seed": 0, "optimizer.lr": 1e-3, "trainer.precision": "32-true", "norm.name": "x"}


def rows_of(
    root: Path, changes: dict[str, list[str]], others: dict[tuple[str, int], dict[str, Any]]
) -> Path:
    """Write two arms of two seeds, some with other values; return the sweep's folder."""
    planned = []
    for arm, seed in itertools.product("ab", (0, 1)):
        name = f"{arm}-s{seed}"
        write_run(root / name, arm, seed, result_of(arm, seed, 3.0 + seed / 100))
        values = {**VALUES, "seed": seed, **others.get((arm, seed), {})}
        write_identity(root / name, Identity("c", "d", values))
        planned.append(SweepRow(arm, seed, name, changes=changes.get(arm, [])))
    write_sweep(root, SweepRecord("x", runs=planned))
    return root


def hashed_keys() -> list[str]:
    """Every key that enters the hash, of every component."""
    sections = {"tokenizer": "bytes", "optimizer": "adamw", "schedule": "cosine", "logger": "none"}
    values = {section: {"name": name} for section, name in sections.items()}
    config = run_config({**values, "model": {}, "data": {"name": "kjv"}, "trainer": {}})
    hashed = hashed_values(config, "d", "32-true").keys()
    return sorted({key.name for key in all_keys() if key.use.in_hash} | hashed - {"seed"})


def test_every_setting_that_enters_the_hash_is_the_same_in_a_table() -> None:
    keys = [key for key in hashed_keys() if key != "seed"]
    assert len(keys) > 60
    assert {"optimizer.lr", "optimizer.weight_decay", "schedule.name", "control"} <= set(keys)
    for key in keys:
        # Runs of an arm never differ, and runs of two arms where one of them changes it.
        one, other = {"seed": 0, key: 1}, {"seed": 1, key: 2}
        rows = [SweepRow("a", seed, "", changes=[key]) for seed in (0, 1)]
        assert list(mixed_settings([Settings(rows[0], one), Settings(rows[1], other)])) == [key]
        for changes in ([], [key]):
            rows = [SweepRow("a", 0, "", changes=changes), SweepRow("b", 0, "", changes=[])]
            mixed = mixed_settings([Settings(rows[0], one), Settings(rows[1], other)])
            assert list(mixed) == ([] if changes else [key])


@pytest.mark.parametrize(
    ("changes", "others"),
    [
        ({}, {("b", 0): {"optimizer.lr": 1e-2}, ("b", 1): {"optimizer.lr": 1e-2}}),
        ({}, {("a", 1): {"optimizer.lr": 1e-2}, ("b", 1): {"optimizer.lr": 1e-2}}),
        ({"b": ["optimizer.lr"]}, {("b", 1): {"optimizer.lr": 1e-2}}),
    ],
)
def test_different_settings_are_refused_with_their_key_and_values(
    tmp_path: Path, changes: Any, others: Any
) -> None:
    root = rows_of(tmp_path, changes, others)
    with pytest.raises(InputError, match=r"differ in optimizer\.lr \(0\.001 in .*0\.01 in "):
        build_table(collect(root))
    told = " ".join(warnings(build_table(collect(root), allow_mixed=True)))
    assert "the runs differ in optimizer.lr: 0.001 (" in told


def test_what_an_arm_changes_may_differ(tmp_path: Path) -> None:
    others = {("b", seed): {"norm.name": "y", "norm.eps": 1.0} for seed in (0, 1)}
    root = rows_of(tmp_path, {"b": ["norm.name", "norm.eps"]}, others)
    assert len(build_table(collect(root)).rows) == 2


def test_what_follows_from_the_seed_differs_between_seeds_alone() -> None:
    rows = [SweepRow("a", seed, "", changes=[], by_seed=["data.split_seed"]) for seed in (0, 1)]
    runs = [Settings(row, {"data.split_seed": row.seed}) for row in rows]
    assert not mixed_settings(runs)
    fixed = SweepRow("a", 2, "", changes=[])
    assert list(mixed_settings([*runs, Settings(fixed, {"data.split_seed": 1})])) == [
        "data.split_seed"
    ]


def test_precision_in_force_is_warned_about(study: StudyFactory) -> None:
    study.changes["silu", 1] = {"precision": "bf16-mixed"}
    study.changes["silu", 2] = {"precision": "32-true"}
    assert "differ in precision" in " ".join(warnings(build_table(collect(study.whole()))))


def test_arms_of_other_seeds_are_warned_about(sweep: SweepFactory) -> None:
    sweep.done("pre", {0: 3.0, 1: 3.1, 2: 3.2})
    sweep.done("post", {2: 2.9})
    told = " ".join(warnings(build_table(collect(sweep.plan()))))
    assert "do not have the same seeds ('post' 2, 'pre' 0, 1, 2)" in told


def test_n_counts_seeds(tmp_path: Path) -> None:
    root = rows_of(tmp_path, {}, {})
    record = read_sweep(root)
    assert record is not None
    again = [SweepRow("a", 0, row.directory, changes=[]) for row in record.runs]
    write_sweep(root, SweepRecord("x", runs=[*record.runs[:2], *again]))
    loss = build_table(collect(root), allow_mixed=True).rows[0].loss
    assert loss is not None
    assert loss.n == 2
