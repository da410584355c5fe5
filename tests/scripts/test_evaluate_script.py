"""Losses from run directories: those of training, those elsewhere, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lm_experiments.data import Documents
from lm_experiments.evaluation import texts

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script() -> ModuleType:
    path = ROOT / "scripts" / "evaluate.py"
    spec = importlib.util.spec_from_file_location("evaluate_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_of(train: Callable[..., Any]) -> Callable[..., Path]:
    """Train a run of three steps; return its directory."""

    def call(*arguments: str) -> Path:
        before = set(Path("runs").glob("*/*/result.json"))
        answer = train(*arguments)
        assert answer.code == 0, answer.err
        [path] = set(Path("runs").glob("*/*/result.json")) - before
        return path.parent

    return call


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def rows(text: str) -> list[dict[str, str]]:
    """The table, as a dictionary for each row."""
    _, head, *lines = text.splitlines()
    return [dict(zip(head.split(), line.split(), strict=True)) for line in lines]


def test_the_loss_is_that_of_the_last_validation_and_can_be_taken_elsewhere(
    script: ModuleType,
    run_of: Callable[..., Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run, other = run_of(), run_of("position=alibi")
    assert script.main([str(run), str(other), "--contexts", "4,16,40"]) == 0
    found = rows(capfd.readouterr().out)
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
    assert script.main([str(run), "--data", "text", "--path", str(tmp_path / "another.txt")]) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"Loss over all of {tmp_path / 'another.txt'}.\n")
    [row] = rows(out)
    # Its 100 bytes and the end of text, of which the first has no target before it.
    assert (row["run"], row["context"], row["tokens"]) == (run.name, "16", "100")

    for arguments, sentence in REFUSED:
        assert script.main([argument.replace("RUN", str(run)) for argument in arguments]) == 2
        captured = capfd.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
        assert sentence in captured.err


REFUSED: list[tuple[list[str], str]] = [
    (["RUN", "--contexts", "64,x"], "--contexts 64,x is not a list of context lengths; type for"),
    (["RUN", "--contexts", "0"], "--contexts 0 is not a list"),
    (["RUN", "--contexts", "99999"], ": a context of 99999 is not below the"),
    (["RUN", "--path", "x.txt"], "--path x.txt is read with --data alone"),
    (["RUN", "--data", "text"], "--data text needs --path"),
    (["RUN", "--data", "nothing"], "--data nothing is not known; it can be fineweb_edu, hf, kjv,"),
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
    script: ModuleType, run_of: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    run = run_of("position=learned")
    assert script.main([str(run), "--contexts", "8,32"]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert f"{run.name}: position=learned has a vector for each of 16 positions" in captured.err
    assert script.main([str(run), "--contexts", "8,16"]) == 0
    assert len(rows(capfd.readouterr().out)) == 2


def test_characters_that_the_tokenizer_lacks_are_told_of(
    script: ModuleType,
    run_of: Callable[..., Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = run_of("tokenizer=chars")
    (tmp_path / "another.txt").write_text("line \u00fc line \u00e9\n", encoding="utf-8")
    arguments = ["--data", "text", "--path", str(tmp_path / "another.txt"), "--contexts", "8"]
    assert script.main([str(run), *arguments]) == 0
    captured = capfd.readouterr()
    warning = f"warning: 2 of 15 tokens are characters that the tokenizer of {run.name} does not"
    assert warning in captured.err
    assert rows(captured.out)[0]["tokens"] == "14"


def test_of_another_corpus_the_validation_part_is_read(
    script: ModuleType,
    run_of: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    documents = Documents([f"{i % 10}" * 50 for i in range(100)])
    monkeypatch.setattr(texts, "load_documents", lambda data: documents)
    assert script.main([str(run_of()), "--data", "kjv"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("Loss over validation text of kjv.\n")
    # Three of a hundred, as conf/data/kjv.yaml has it, each with an end of text.
    assert rows(out)[0]["tokens"] == "152"


def test_starts_without_the_training_libraries() -> None:
    code = (
        "import sys, runpy; runpy.run_path('scripts/evaluate.py'); "
        "print([m for m in ('lightning', 'wandb', 'torch._dynamo') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
