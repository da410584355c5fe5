"""Losses from run directories: those of training, those elsewhere, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.commands import Answer, imported

from lm_experiments.data import Documents
from lm_experiments.evaluation import texts


@pytest.fixture
def evaluate(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """Call the command, which has to succeed."""

    def call(*arguments: object) -> Answer:
        answer = command("evaluate", *arguments)
        assert answer.code == 0, answer.err
        return answer

    return call


def rows(text: str) -> list[dict[str, str]]:
    """The table, as a dictionary for each row."""
    _, head, *lines = text.splitlines()
    return [dict(zip(head.split(), line.split(), strict=True)) for line in lines]


def test_the_loss_is_that_of_the_last_validation_and_can_be_taken_elsewhere(
    evaluate: Callable[..., Answer],
    refused: Callable[..., str],
    run_of: Callable[..., Path],
    tmp_path: Path,
) -> None:
    run, other = run_of(), run_of("position=alibi")
    found = rows(evaluate(run, other, "--contexts", "4,16,40").out)
    assert [row["run"] for row in found] == [run.name] * 3 + [other.name] * 3
    assert [row["context"] for row in found] == ["4", "16", "40"] * 2
    for row, directory in ((found[1], run), (found[4], other)):
        result = json.loads((directory / "result.json").read_text())
        assert float(row["nats/token"]) == pytest.approx(result["val_loss"], abs=6e-5)
        assert float(row["perplexity"]) == pytest.approx(result["perplexity"], abs=6e-3)
        assert float(row["bits/byte"]) == pytest.approx(result["bits_per_byte"], abs=6e-5)
        assert int(row["tokens"].replace(",", "")) == result["val_tokens"]
    assert len({row["nats/token"] for row in found}) == 6

    (tmp_path / "another.txt").write_text("abc " * 25, encoding="utf-8")
    out = evaluate(run, "--data", "text", "--path", tmp_path / "another.txt").out
    assert out.startswith(f"Loss over all of {tmp_path / 'another.txt'}.\n")
    [row] = rows(out)
    # Its 100 bytes and the end of text, of which the first has no target before it.
    assert (row["run"], row["context"], row["tokens"]) == (run.name, "16", "100")

    for arguments, sentence in REFUSED:
        words = [argument.replace("RUN", str(run)) for argument in arguments]
        assert sentence in refused("evaluate", *words)


def test_the_test_text_is_evaluated_where_it_is_asked_for(
    evaluate: Callable[..., Answer], run_of: Callable[..., Path]
) -> None:
    run = run_of("data.test_fraction=0.2")
    answer = evaluate(run, "--split", "test")
    assert answer.out.startswith("Loss over the test text of each run.\n")
    [row] = rows(answer.out)
    result = json.loads((run / "result.json").read_text())
    assert float(row["nats/token"]) == pytest.approx(result["test_loss"], abs=6e-5)
    assert float(row["bits/byte"]) == pytest.approx(result["test_bits_per_byte"], abs=6e-5)
    assert int(row["tokens"].replace(",", "")) == result["test_tokens"]


REFUSED: list[tuple[list[str], str]] = [
    (["RUN", "--split", "test"], " has no test text, as it was trained without data.test_fraction"),
    (["RUN", "--split", "test", "--data", "kjv"], "--split test is of a run's own text; leave out"),
    (["RUN", "--contexts", "64,x"], "--contexts 64,x is not a list of context lengths; type for"),
    (["RUN", "--contexts", "0"], "--contexts 0 is not a list"),
    (["RUN", "--contexts", "99999"], ": a context of 99999 is not below the"),
    (["RUN", "--path", "x.txt"], "--path x.txt is read with --data alone"),
    (["RUN", "--data", "text"], "data=text has no data.path; type data.path="),
    (["RUN", "--data", "nothing"], "data=nothing is not known; it can be addition, copy,"),
    (["RUN", "--data", "tokens", "--path", "x"], "data=tokens is no text that another"),
    (["RUN", "data.separator=x"], "data.separator=x is read with --data alone"),
    (["RUN", "--data", "kjv", "data.speed=1"], "data.speed is not a key"),
    (["RUN", "--device", "abacus"], "--device abacus cannot be used here; type --device cpu."),
    (["RUN/.."], "is a sweep; name one of its runs, for example"),
    (["RUN", "absent"], "absent is not a run directory"),
    (["code_paths=absent.py", "RUN"], "absent.py, which is not a file"),
    (["code_paths=[]"], "No run is named"),
]


def test_learned_positions_are_refused_before_anything_is_evaluated(
    evaluate: Callable[..., Answer], refused: Callable[..., str], run_of: Callable[..., Path]
) -> None:
    run = run_of("position=learned")
    error = refused("evaluate", run, "--contexts", "8,32")
    assert f"{run.name}: position=learned has a vector for each of 16 positions" in error
    assert len(rows(evaluate(run, "--contexts", "8,16").out)) == 2


def test_characters_that_the_tokenizer_lacks_are_told_of(
    evaluate: Callable[..., Answer], run_of: Callable[..., Path], tmp_path: Path
) -> None:
    run = run_of("tokenizer=chars")
    (tmp_path / "another.txt").write_text("line \u00fc line \u00e9\n", encoding="utf-8")
    arguments = ("--data", "text", "--path", tmp_path / "another.txt", "--contexts", "8")
    answer = evaluate(run, *arguments)
    assert f"warning: 1 documents do not come back from the tokens of {run.name}" in answer.err
    assert (rows(answer.out)[0]["tokens"], rows(answer.out)[0]["bits/byte"]) == ("14", "unknown")


def test_of_another_corpus_the_validation_part_is_read(
    evaluate: Callable[..., Answer], run_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = Documents([f"{i:02}" * 25 for i in range(100)])
    monkeypatch.setattr(texts, "load_documents", lambda data: documents)
    out = evaluate(run_of(), "--data", "kjv").out
    assert out.startswith("Loss over validation text of kjv.\n")
    # Three of a hundred, as conf/data/kjv.yaml has it, each with an end of text.
    assert rows(out)[0]["tokens"] == "152"


def test_starts_without_the_training_libraries() -> None:
    assert imported("evaluate", ["lightning", "wandb", "torch._dynamo"]) == "[]"
