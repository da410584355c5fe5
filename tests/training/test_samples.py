"""Samples on the way: what they hold, and that training does not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.wandb_runs import clean_client, history

from lm_experiments.errors import InputError
from lm_experiments.evaluation import Sampling, stream
from lm_experiments.model import keyed_seed
from lm_experiments.rundir.diagnostics import read_diagnostics
from lm_experiments.rundir.metrics import read_rows
from lm_experiments.study.open_run import open_run
from lm_experiments.training.checkpoints import load_model
from lm_experiments.training.watch_config import SamplesConfig

PROMPTS = 'samples.prompts=["line 3",""]'
WORDS = ("trainer.max_steps=5", "model.dropout=0.1", "trainer.micro_batch_size=3")


def test_training_is_the_same_to_the_last_bit_and_has_the_same_name(
    run_of: Callable[..., Path],
) -> None:
    """With samples and diagnostics, dropout and micro-batches; the last text is the model's."""
    without = run_of("name=without", *WORDS)
    # Longer than the context, so that the window slides too.
    drawn = ["samples.every=2", PROMPTS, "samples.tokens=20", "samples.temperature=1"]
    watched = run_of("name=with", *WORDS, *drawn, "diagnostics.every=auto")
    assert without.name == watched.name
    states = [load_model(run, open_run(run).config).state_dict() for run in (without, watched)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    rows = read_rows(watched / "samples.jsonl")
    assert [(row["step"], row["prompt"]) for row in rows] == [
        (step, prompt) for step in (2, 4, 5) for prompt in ("line 3", "")
    ]
    assert not (without / "samples.jsonl").exists()
    assert [row["step"] for row in read_diagnostics(watched)] == [1, 2, 3, 4, 5]
    assert not read_diagnostics(without)

    opened = open_run(watched)
    ids = [int(token) for token in opened.tokenizer.encode("line 3")]
    generator = torch.Generator().manual_seed(keyed_seed(0, "samples", 5, 0))
    end = opened.tokenizer.end_of_text_id
    text = opened.tokenizer.decode(
        list(stream(opened.model(), ids, 20, Sampling(1.0), generator, end))
    )
    assert rows[-2]["text"] == text


@pytest.mark.slow
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
    ("values", "told"),
    [
        ({"every": 0}, "samples.every=0 and samples.tokens=64 must be 1 or more"),
        ({"every": 5, "prompts": []}, "must be different texts, at least one"),
        ({"every": 5, "temperature": -1.0}, "samples.temperature=-1 must be 0 or more"),
        ({"every": 5, "strategy": "fsdp"}, "trainer.strategy=fsdp cuts into shards"),
    ],
)
def test_what_cannot_be_sampled_is_refused(values: dict[str, Any], told: str) -> None:
    strategy = values.pop("strategy", "ddp")
    with pytest.raises(InputError, match=told):
        SamplesConfig(**values).steps(strategy)
