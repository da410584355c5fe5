"""Runs on synthetic tasks: what is scored, on which problems, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.commands import SMALL, Answer
from harness.runs import result, rows

from lm_experiments.data import IGNORE_INDEX, DataConfig, Source, chance, prepare
from lm_experiments.data.tasks import TaskConfig
from lm_experiments.data.tokenizers import SymbolTokenizer
from lm_experiments.errors import InputError
from lm_experiments.rundir.evaluations import Evaluate
from lm_experiments.rundir.study import Study, Tuning
from lm_experiments.study.checks import check_evaluated
from lm_experiments.study.preview import _tuned_on_what_is_reported
from lm_experiments.training.checkpoints import load_model
from lm_experiments.training.config import load_config
from lm_experiments.training.metrics import AnswerScore

WORDS = (
    *(word for word in SMALL if not word.startswith(("data", "tokenizer"))),
    "data=copy",
    "data.task.symbols=4",
    "data.task.smallest=1",
    "data.task.largest=8",
    "data.task.test_largest=12",
    "data.task.held_out=40",
    "data.batch_size=16",
)


@pytest.fixture
def task_run(train: Callable[..., Answer]) -> Callable[..., Path]:
    def call(*words: str) -> Path:
        answer = train(*WORDS, *words, small=False)
        assert answer.code == 0, answer.err
        [path] = Path("runs").glob(f"{words[0].split('=')[1]}/*/result.json")
        return path.parent

    return call


def test_an_answer_is_right_where_it_is_the_likeliest() -> None:
    score, no = AnswerScore(), IGNORE_INDEX
    targets = torch.tensor([[no, 3, 4], [no, 5, no], [no, no, no], [no, 1, 2]])
    right = torch.tensor(
        [[True, True, False], [False, True, False], [True] * 3, [False, True, True]]
    )
    for rows_ in (slice(0, 1), slice(1, 4)):
        score.update(right[rows_], targets[rows_])
    assert {k: float(v) for k, v in score.compute().items()} == {
        "accuracy": pytest.approx(4 / 5),
        "exact_match": pytest.approx(2 / 3),
    }


def test_a_run_scores_its_answers_in_length_and_beyond(
    task_run: Callable[..., Path], refused: Callable[..., str]
) -> None:
    run = task_run("name=whole", "trainer.val_tokens=100")
    values, config = result(run), load_config(run)
    data = prepare(config.data.corpus, config.tokenizer, Path(config.cache_dir))
    model = load_model(run, config)
    model.position.extend(24)
    for part, prefix in ((data.val, ""), (data.test, "test_")):
        assert part is not None
        accuracy, exact, loss, answers = scored(model, part)
        assert values[f"{prefix}accuracy"] == pytest.approx(accuracy, abs=1e-9)
        assert values[f"{prefix}exact_match"] == pytest.approx(exact, abs=1e-9)
        assert values["test_loss" if prefix else "val_loss"] == pytest.approx(loss, rel=1e-5)
        assert values["test_tokens" if prefix else "val_tokens"] == answers
    assert values["chance"] == chance("copy", config.data.task)
    assert (values["bits_per_byte"], values["test_bits_per_byte"]) == (None, None)
    assert not (run / "documents.npz").exists()
    [point] = [row for row in rows(run) if "test/accuracy" in row]
    assert point["test/accuracy"] == values["test_accuracy"]
    assert 0 < values["curve_tokens"] < values["val_tokens"]
    [whole] = [row for row in rows(run) if "whole/accuracy" in row]
    assert whole["whole/accuracy"] == values["accuracy"]
    assert "are no text; the accuracy of its runs" in refused("evaluate", run)
    said = refused("evaluate", run, "--data", "copy")
    assert "data=copy is no text that another tokenizer could encode" in said


def scored(model: Any, part: Source) -> tuple[float, float, float, int]:
    """Return accuracy, exact match, mean loss and number of answers, a problem at a time."""
    once, right, solved, loss = part.once(16, 1), 0, 0, 0.0
    answers = 0
    for index in range(len(once)):
        inputs, targets = once[index]
        at = targets[0] != IGNORE_INDEX
        with torch.inference_mode():
            logits = model(inputs)[0, at]
        hits = logits.argmax(-1) == targets[0, at]
        right, answers = right + int(hits.sum()), answers + int(at.sum())
        solved += bool(hits.all())
        loss += float(torch.nn.functional.cross_entropy(logits, targets[0, at], reduction="sum"))
    return right / answers, solved / len(once), loss / answers, answers


def test_a_plan_says_what_the_problems_are(train: Callable[..., Answer]) -> None:
    answer = train(*WORDS, "-m", "norm=rmsnorm,layernorm", "plan=true", small=False)
    assert answer.code == 0, answer.err
    assert "validation text: its problems are drawn apart from those of training" in answer.out
    assert "far from" not in answer.out


def test_a_study_cannot_compare_what_is_not_measured(
    train: Callable[..., Answer], tmp_path: Path
) -> None:
    text = "name: a\nbaseline: x\nprimary: accuracy\narms: {x: [], y: [norm=layernorm]}\n"
    (tmp_path / "a.yaml").write_text(text)
    answer = train("-m", "study=a.yaml", "plan=true")
    assert answer.code == 2
    assert (
        "study.primary=accuracy is not measured on data=text of arm 'x'; type study." in answer.err
    )


@pytest.mark.parametrize(
    ("data", "tokenizer", "evaluate", "sentence"),
    [
        ("copy", "symbols", Evaluate([1, 2]), "runs of arm 'x' read data=copy; leave evaluate:"),
        ("tokens", "none", Evaluate(tasks=["piqa"]), "tokenizer=none of arm 'x' cannot encode"),
    ],
)
def test_a_study_cannot_measure_what_its_runs_cannot_read(
    data: str, tokenizer: str, evaluate: Evaluate, sentence: str
) -> None:
    corpus = DataConfig(data, path="." if data == "tokens" else None)
    config = SimpleNamespace(data=corpus, tokenizer=SimpleNamespace(name=tokenizer))
    arms: Any = {"x": SimpleNamespace(config=config)}
    with pytest.raises(InputError, match=sentence):
        check_evaluated(arms, evaluate)
    check_evaluated(arms, None)


@pytest.mark.parametrize(("longer", "lines"), [(0, 1), (32, 0)])
def test_a_rate_tuned_on_a_task_is_reported_on_its_longer_problems(longer: int, lines: int) -> None:
    corpus = DataConfig("copy", task=TaskConfig(test_largest=longer))
    arms: Any = {"x": SimpleNamespace(config=SimpleNamespace(data=corpus))}
    study = Study("a", "x", {"x": []}, tune=Tuning(grid=[1e-3, 2e-3, 4e-3]))
    assert len(_tuned_on_what_is_reported(arms, study)) == lines


def test_what_is_generated_stands_apart_from_its_prompt() -> None:
    tokenizer = SymbolTokenizer(64)
    assert f"3 40{tokenizer.decode([5, 64, 7])}" == "3 40 5<|endoftext|> 7"
    assert tokenizer.encode(tokenizer.decode([5, 7])).tolist() == [5, 7]


def test_positions_that_cannot_be_extended_are_refused_before_training(
    train: Callable[..., Answer],
) -> None:
    answer = train(*WORDS, "position=learned", small=False)
    assert answer.code == 2
    assert "position=learned has a vector for each of 16 positions" in answer.err
    assert not list(Path("runs").glob("*/*"))
