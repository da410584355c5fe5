"""The public evaluation harness finds the same loss for an exported run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from lm_experiments.data import Tokenizer, train_tokenizer
from lm_experiments.errors import InputError
from lm_experiments.interop import write_folder
from lm_experiments.model import Choice, ModelConfig, Transformer, build_model
from lm_experiments.registry import choose

pytest.importorskip("lm_eval")

LONGEST = 300
DOCUMENTS = [
    {"text": "the cat sat on the mat.", "answers": ["mat", "dog"], "right": 0},
    {"text": "the dog sat on the log; the cat saw it.", "answers": ["no", "it"], "right": 1},
    {"text": "a cat and a dog.", "answers": ["dog", "log"], "right": 0},
]
TASK = {
    "dataset_path": "json",
    "test_split": "test",
    "metadata": {"version": 1.0},
}
TASKS = {
    "local_bits": {
        **TASK,
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "bits_per_byte"}],
    },
    "local_choice": {
        **TASK,
        "output_type": "multiple_choice",
        "doc_to_text": "{{text.split(' ')[0]}}",
        "doc_to_choice": "{{answers}}",
        "doc_to_target": "right",
        "metric_list": [{"metric": "acc"}],
    },
}


def write_tasks(folder: Path) -> None:
    folder.mkdir()
    data = folder / "documents.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    for name, task in TASKS.items():
        files = {"dataset_kwargs": {"data_files": {"test": str(data)}}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, **task, **files}))


def bits_per_byte(model: Transformer, tokenizer: Tokenizer) -> float:
    """The loss of each document by itself, after an end of text."""
    nats = 0.0
    for document in DOCUMENTS:
        ids = [tokenizer.end_of_text_id, *tokenizer.encode(str(document["text"])).tolist()]
        tokens = torch.tensor([ids])
        with torch.no_grad():
            nats += model.loss(tokens[:, :-1], tokens[:, 1:]).item()
    size = sum(len(str(document["text"]).encode()) for document in DOCUMENTS)
    return nats / math.log(2) / size


@pytest.mark.slow
def test_a_model_is_asked_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval.tasks import TaskManager

    from lm_experiments.interop.harness import HarnessModel, check_tasks, score_task

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    tokenizer = train_tokenizer([], choose("tokenizer", "bytes"))
    sizes = {"d_model": 32, "n_layers": 2, "n_heads": 2, "context_length": 64}
    config = ModelConfig(**sizes, vocab_size=tokenizer.vocab_size)  # type: ignore[arg-type]
    model = build_model(config, seed=0).eval()
    write_tasks(tmp_path / "tasks")
    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    check_tasks(["local_choice"], manager)
    with pytest.raises(InputError, match=r"local_choic is no task of lm-eval\. Did you mean local"):
        check_tasks(["local_choic"], manager)

    def likelihood(text: str, answer: str) -> float:
        """The loss of the answer's bytes after a space, alone."""
        before, after = tokenizer.encode(text).tolist(), tokenizer.encode(f" {answer}").tolist()
        tokens = torch.tensor([[*before, *after]])
        with torch.no_grad():
            losses = model.losses(tokens[:, :-1], tokens[:, 1:])[0]
        return -losses[0, -len(after) :].sum().item()

    right = 0
    for document in DOCUMENTS:
        first = str(document["text"]).split(" ")[0]
        told = [likelihood(first, answer) for answer in document["answers"]]  # type: ignore[union-attr]
        asked = HarnessModel(model, tokenizer)
        pair = asked._encode_pair(first, f" {document['answers'][0]}")  # type: ignore[index]
        assert asked._likelihood(*pair)[0] == pytest.approx(told[0], abs=1e-4)
        right += told.index(max(told)) == document["right"]
    assert score_task(model, tokenizer, "local_choice", manager) == ("acc", right / 3)
    assert score_task(model, tokenizer, "local_bits", manager) is None


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_the_harness_finds_our_bits_per_byte(arch: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer([], choose("tokenizer", "bytes"))
    other = {
        "norm": Choice("layernorm"),
        "ffn": Choice("gelu"),
        "position": Choice("learned"),
    }
    config = ModelConfig(
        d_model=32,
        n_layers=2,
        n_heads=2,
        context_length=64,
        vocab_size=tokenizer.vocab_size,
        **({} if arch == "llama" else other),
    )
    model = build_model(config, seed=0).eval()
    write_folder(tmp_path / "out", model, tokenizer)
    write_tasks(tmp_path / "tasks")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "lm_eval", "run", "--model", "hf"),
            *("--model_args", f"pretrained={tmp_path / 'out'},dtype=float32"),
            *("--tasks", ",".join(TASKS), "--include_path", str(tmp_path / "tasks")),
            *("--device", "cpu", "--batch_size", "2", "--output_path", str(tmp_path / "results")),
        ],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        cwd=tmp_path,
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_CACHE": str(tmp_path / "cache"),
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [file] = (tmp_path / "results").rglob("results_*.json")
    results = json.loads(file.read_text())["results"]
    expected = bits_per_byte(model, tokenizer)
    assert results["local_bits"]["bits_per_byte,none"] == pytest.approx(expected, rel=1e-5)
    assert 0 <= results["local_choice"]["acc,none"] <= 1
