"""An exported run, loaded without this package, generates the same text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lm_experiments.cli import evaluate, export_hf
from lm_experiments.evaluation import Sampling, stream
from lm_experiments.interop import load_hf, read_folder
from lm_experiments.study.open_run import open_run

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 300
# Runs in a process that cannot import this package, on folders that are named.
STRANGER = """
import json, sys
sys.modules["lm_experiments"] = None
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

torch.set_num_threads(1)
for folder in sys.argv[2:]:
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer(sys.argv[1], return_tensors="pt")
    written = model.generate(**prompt, do_sample=False, max_new_tokens=40)[0]
    ids = written[prompt["input_ids"].shape[1]:].tolist()
    print(json.dumps([type(model).__name__, ids, tokenizer.decode(ids)]))
"""
PROMPT = "line 3 of a"
LONGER = ("trainer.max_steps=60", "model.d_model=32", "optimizer.lr=0.02")


def export(*words: Any) -> int:
    return export_hf.main([str(word) for word in words])


@pytest.fixture
def run_of(run_of: Callable[..., Path]) -> Callable[..., Path]:
    """Train a run of a longer context; return its directory."""
    return partial(run_of, "model.context_length=64")


def our_text(run_dir: Path, prompt: str) -> tuple[list[int], str]:
    run = open_run(run_dir)
    tokenizer = run.data.tokenizer
    ids = list(
        stream(
            run.model(),
            tokenizer.encode(prompt).tolist(),
            40,
            Sampling(temperature=0),
            torch.Generator(),
            stop_id=tokenizer.end_of_text_id,
        )
    )
    return ids, tokenizer.decode(ids)


def their_text(folder: Path, prompt: str) -> tuple[str, list[int], str]:
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(prompt, return_tensors="pt")
    written = model.generate(**inputs, do_sample=False, max_new_tokens=40)[0]
    ids = written[inputs["input_ids"].shape[1] :].tolist()
    return type(model).__name__, ids, tokenizer.decode(ids)


def strangers(prompt: str, *folders: Path) -> list[list[Any]]:
    """What a process without this package makes of the folders."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", STRANGER, prompt, *map(str, folders)],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        env={"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("LlamaForCausalLM", ("tokenizer=bpe", "tokenizer.vocab_size=270")),
        ("GPT2LMHeadModel", ("arch=gpt2", "tokenizer=chars")),
    ],
)
def test_greedy_text_is_ours(
    name: str,
    arguments: tuple[str, ...],
    run_of: Callable[..., Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run_dir, folder = run_of(*LONGER, *arguments), tmp_path / "exported" / "model"
    folder.parent.mkdir()
    assert export(run_dir, folder) == 0, capfd.readouterr().err
    assert str(folder) in capfd.readouterr().out
    files = {"config.json", "model.safetensors", "tokenizer.json"}
    assert files <= {path.name for path in folder.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    ids, text = our_text(run_dir, PROMPT)
    assert len(set(ids)) > 8, "text that repeats a few tokens would agree by chance"
    assert their_text(folder, PROMPT) == (name, ids, text)


@pytest.mark.slow
def test_greedy_text_is_ours_where_this_package_cannot_be_imported(
    run_of: Callable[..., Path], tmp_path: Path
) -> None:
    run_dir = run_of(*LONGER, "tokenizer=bpe", "tokenizer.vocab_size=270")
    assert export(run_dir, tmp_path / "out") == 0
    ids, text = our_text(run_dir, PROMPT)
    assert strangers(PROMPT, tmp_path / "out") == [["LlamaForCausalLM", ids, text]]


def test_an_export_comes_back_as_the_same_model(
    run_of: Callable[..., Path], tmp_path: Path
) -> None:
    run = open_run(run_of("arch=gpt2", "model.bias=false"))
    assert export(run.directory, tmp_path / "out") == 0
    before, after = run.model(), load_hf(tmp_path / "out")
    tokens = torch.arange(32)[None]
    assert torch.allclose(before(tokens), after(tokens), atol=1e-4)
    config, tokenizer = read_folder(tmp_path / "out")
    assert config.tie_embeddings and config.bias
    assert tokenizer.end_of_text_id == run.data.tokenizer.end_of_text_id
    for name in ("config.json", "generation_config.json"):
        written = json.loads((tmp_path / "out" / name).read_text())
        assert written["eos_token_id"] == written["bos_token_id"] == tokenizer.end_of_text_id


def test_what_cannot_be_exported_says_why(
    run_of: Callable[..., Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run_dir = run_of("ffn=relu2")
    assert export(run_dir, tmp_path / "out") == 2
    error = capfd.readouterr().err
    assert "ffn=relu2" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()

    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    assert export(run_dir, tmp_path / "taken") == 2
    assert "taken exists already" in capfd.readouterr().err
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["file"]

    assert export(run_dir) == 2
    assert "export_hf.py RUN OUT" in capfd.readouterr().err
    assert export(tmp_path, tmp_path / "out") == 2
    assert "error:" in capfd.readouterr().err


def test_the_loss_of_an_export_is_that_of_the_run(
    run_of: Callable[..., Path],
    text_file: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run_dir = run_of()
    assert export(run_dir, tmp_path / "out") == 0
    capfd.readouterr()
    data = ("--data", "text", "--path", str(text_file), "--contexts", "16,64")
    assert evaluate.main([str(run_dir), f"hf:{tmp_path / 'out'}", *data]) == 0
    out = capfd.readouterr().out
    rows = [line.split() for line in out.splitlines()[2:]]
    assert [row[0] for row in rows] == [run_dir.name] * 2 + ["out"] * 2
    assert [row[1:] for row in rows[:2]] == [row[1:] for row in rows[2:]]
    assert len({row[3] for row in rows}) == 2

    assert evaluate.main([f"hf:{tmp_path / 'out'}"]) == 2
    assert "has no text of its own; type --data" in capfd.readouterr().err
    assert evaluate.main([f"hf:{tmp_path / 'nowhere'}"]) == 2
    assert "no config.json" in capfd.readouterr().err


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(
    run_of: Callable[..., Path], tmp_path: Path
) -> None:
    assert export(run_of("tokenizer=chars"), tmp_path / "small") == 0
    assert export(run_of(), tmp_path / "large") == 0
    file = "tokenizer.json"
    (tmp_path / "small" / file).write_bytes((tmp_path / "large" / file).read_bytes())
    with pytest.raises(ValueError, match="has 257 tokens"):
        read_folder(tmp_path / "small")
