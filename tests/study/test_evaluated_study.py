"""A study that asks for other contexts and texts: measured after training, or added later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.commands import Answer

from lm_experiments.report import collect
from lm_experiments.rundir.evaluations import Evaluation, read_evaluations
from lm_experiments.rundir.results import Result, read_result
from lm_experiments.study import evaluations

STUDY = """
name: away
baseline: ALiBi
arms: {ALiBi: [position=alibi], learned: [position=learned]}
seeds: [0]
"""
CONTEXTS = "evaluate: {contexts: [0.5, 1, 4]}\n"
ALL = (
    "evaluate: {contexts: [0.5, 1, 4], data: {my: [data=text, data.path=my.txt]}, tasks: [easy]}\n"
)


@pytest.fixture
def away(train: Callable[..., Answer], tmp_path: Path) -> Callable[[str], Answer]:
    """Train the study with some lines added, in a folder with a text beside it."""
    (tmp_path / "my.txt").write_text("line 3 of another text\n" * 30, encoding="utf-8")

    def call(added: str) -> Answer:
        (tmp_path / "away.yaml").write_text(STUDY + added, encoding="utf-8")
        return train("-m", "study=away.yaml", "name=away", "resources.at_once=1")

    return call


def measured(arm: str) -> tuple[Result, dict[str, Evaluation]]:
    [run] = [run for run in collect("runs/away").runs if run.arm == arm]
    return run.result, read_evaluations(run.directory, run.result.val_loss)


@pytest.mark.slow
def test_trained_runs_are_measured_and_more_can_be_asked_for_later(
    away: Callable[[str], Answer],
    command: Callable[..., Answer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = pytest.importorskip("lm_experiments.interop.harness")
    # Its own tasks need the network.
    monkeypatch.setattr(harness, "check_tasks", lambda tasks: None)
    monkeypatch.setattr(harness, "score_task", lambda model, tokenizer, task: ("acc", 0.25))
    assert (answer := away(CONTEXTS)).code == 0, answer.text
    assert "Trained runs are then measured on 0.5x, 1x, 4x, which the time" in answer.out
    assert answer.out.count("Evaluated ") == 2
    result, found = measured("ALiBi")
    assert list(found) == ["context: 8", "context: 16", "context: 64"]
    assert found["context: 16"].loss == pytest.approx(result.val_loss, abs=1e-6)
    assert found["context: 16"].bits_per_byte == pytest.approx(result.bits_per_byte, abs=1e-6)
    assert found["context: 64"].ends == [1, 2, 4, 8, 16, 32, 64]
    assert sum(found["context: 64"].position_tokens) == found["context: 64"].tokens
    learned = measured("learned")[1]
    assert (learned["context: 64"].loss, learned["context: 64"].refused) == (None, "trained to 16")
    assert learned["context: 8"].loss is not None

    trained = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("result.json")}
    kept = {path: path.read_bytes() for path in Path("runs").rglob("evaluations.json")}
    assert (answer := away(ALL)).code == 0, answer.text
    assert answer.out.count(": my, easy.") == 2
    assert trained == {path: path.stat().st_mtime_ns for path in Path("runs").rglob("result.json")}
    more = measured("ALiBi")[1]
    assert more.pop("data: data=text data.path=my.txt").bits_per_byte
    task = more.pop("task: easy")
    assert (task.score, task.measure) == (0.25, "acc")
    assert more == found

    # What one run lost comes back, and nothing else is measured.
    lost = next(iter(kept))
    lost.write_bytes(kept[lost])
    answer = command("evaluate", "runs/away")
    assert (answer.code, answer.out.count("Evaluated ")) == (0, 1), answer.text
    assert "Evaluated " not in command("evaluate", "runs/away").out

    again = json.loads(lost.read_text())
    lost.unlink()
    for path in lost.parent.glob("checkpoints/*"):
        path.unlink()
    answer = command("evaluate", "runs/away")
    assert answer.code == 2
    assert "is not evaluated: " in answer.err and "has no checkpoint" in answer.err
    assert again["val_loss"] == read_result(lost.parent).val_loss  # type: ignore[union-attr]


def test_what_cannot_be_evaluated_is_refused_before_training(
    away: Callable[[str], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluations, "find_spec", lambda name: None)
    for added, sentence in (
        ("evaluate: {data: {my: [data=txt]}}", "study.evaluate.data.my: data=txt is not known"),
        ("evaluate: {data: {my: [data=text, data.path=gone.txt]}}", "data.my: data.path=gone.txt"),
        ("evaluate: {tasks: [piqa]}", "study.evaluate.tasks needs packages that are not installed"),
        ("evaluate: {data: {my: [data=tokens, data.path=.]}}", "data.my: data=tokens is no text"),
    ):
        answer = away(added)
        assert answer.code == 2 and sentence in answer.err, answer.text
    assert not list(Path("runs").rglob("result.json"))


@pytest.mark.slow
def test_a_sweep_that_asks_for_nothing_is_told_how_to_ask(
    train: Callable[..., Answer], refused: Callable[..., str]
) -> None:
    assert train("-m", "seed=0,1", "name=plain", "resources.at_once=1").code == 0
    error = refused("evaluate", "runs/plain")
    assert "The study of runs/plain asks for no evaluations; add evaluate: {contexts: " in error
    for words in (["--contexts", "8"], ["--split", "test"]):
        assert f"{words[0]} is for single runs" in refused("evaluate", "runs/plain", *words)
