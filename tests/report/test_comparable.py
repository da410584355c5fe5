"""Which runs may stand in one table, and what is said of those that may not."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic_runs import SweepFactory, failed, result_of
from synthetic_studies import StudyFactory

from lm_experiments.errors import InputError
from lm_experiments.report import build_table, collect
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.warnings import warnings

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
    study.changes["silu", 1] = {"device": "cuda", "threads": 4}
    told = " ".join(warnings(build_table(collect(study.whole()))))
    assert "differ in device" in told
    assert "differ in threads" in told


def test_trials_of_other_code_are_warned_about(study: StudyFactory) -> None:
    study.tuned = True
    study.changes["silu", 100] = {"commit": "b" * 40}
    told = " ".join(warnings(build_table(collect(study.whole()))))
    assert "some tuning trials have another commit: bbbbbbbbbbbb" in told
