"""Samples on the way: what they hold, and that training does not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness.wandb_runs import clean_client, history

from lm_experiments.cli.open_run import open_run
from lm_experiments.evaluation import Sampling, stream
from lm_experiments.rundir.metrics import read_rows
from lm_experiments.training.checkpoints import load_model

PROMPTS = 'samples.prompts=["line 3",""]'
WORDS = ("trainer.max_steps=5", "model.dropout=0.1", "trainer.micro_batch_size=3")


def test_training_is_the_same_to_the_last_bit_and_has_the_same_name(
    run_of: Callable[..., Path],
) -> None:
    without = run_of("name=without", *WORDS)
    # Longer than the context, so that the window slides too.
    drawn = ["samples.every=2", PROMPTS, "samples.tokens=20", "samples.temperature=1"]
    sampled = run_of("name=with", *WORDS, *drawn)
    assert without.name == sampled.name
    states = [load_model(run, open_run(run).config).state_dict() for run in (without, sampled)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    rows = read_rows(sampled / "samples.jsonl")
    assert [(row["step"], row["prompt"]) for row in rows] == [
        (step, prompt) for step in (2, 4, 5) for prompt in ("line 3", "")
    ]
    assert len({row["text"] for row in rows}) > 1
    assert not (without / "samples.jsonl").exists()


def test_the_last_text_is_what_the_saved_model_writes(run_of: Callable[..., Path]) -> None:
    run = run_of("name=one", *WORDS, "samples.every=5", PROMPTS, "samples.tokens=7")
    opened = open_run(run)
    model, tokenizer = opened.model(), opened.tokenizer
    ids = stream(
        model,
        [int(i) for i in tokenizer.encode("line 3")],
        7,
        Sampling(0.0),
        torch.Generator(),
        tokenizer.end_of_text_id,
    )
    row, _ = read_rows(run / "samples.jsonl")
    assert row == {"step": 5, "prompt": "line 3", "text": tokenizer.decode(list(ids))}


def test_wandb_has_samples_and_diagnostics(
    run_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clean_client(tmp_path, monkeypatch):
        words = ("samples.every=2", "diagnostics.every=3")
        run = run_of(
            "name=w", "logger=wandb", "logger.mode=offline", 'samples.prompts=["<b>"]', *words
        )
    rows = history(run)
    sent = [row["samples.path"] for row in rows if "samples.path" in row]
    [offline] = run.glob("wandb/offline-run-*")
    pages = [(offline / "files" / path).read_text() for path in sent]
    assert [page.count("<tr>") for page in pages] == [2, 3]
    # Prompts and texts are no HTML of their own.
    assert all("&lt;b&gt;" in page and "<b>" not in page for page in pages)
    assert sum("diagnostics/gradient_norm/head" in row for row in rows) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["samples.every=0"], "samples.every=0 and samples.tokens=64 must be 1 or more"),
        (["samples.every=5", "samples.prompts=[]"], "must be different texts, at least one"),
        (["samples.every=5", "samples.temperature=-1"], "samples.temperature=-1 must be 0 or more"),
        (["samples.every=5", "trainer.devices=2", "trainer.strategy=fsdp"], "cuts into shards"),
    ],
)
def test_what_cannot_be_sampled_is_refused(
    words: list[str], told: str, refused: Callable[..., str]
) -> None:
    assert told in refused("train", *words, "logger=none")
