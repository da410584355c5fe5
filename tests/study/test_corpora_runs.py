"""Runs on corpora and tokenizers from elsewhere: their identity, and what their results hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from lm_experiments.conf_dir import conf_dir
from lm_experiments.data import DataConfig, load_documents
from lm_experiments.study.choices import offer_choices
from lm_experiments.study.identity import config_hash
from lm_experiments.study.plan import checked, plain
from lm_experiments.study.sweeper import register
from lm_experiments.training.config import RunConfig


def composed(*overrides: str) -> RunConfig:
    offer_choices()
    register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        values = compose("train", ["logger=none", "trainer.accelerator=cpu", *overrides])
        return checked(plain(values))


def test_a_corpus_brings_its_vocabulary_unless_another_is_chosen() -> None:
    assert composed("data=tinystories").tokenizer.options.vocab_size == 10_000
    assert composed("data=openwebtext").tokenizer.options.vocab_size == 32_000
    assert composed("data=tinystories", "tokenizer=bytes").tokenizer.name == "bytes"
    assert (
        composed("data=tinystories", "tokenizer.vocab_size=512").tokenizer.options.vocab_size == 512
    )
    assert composed().tokenizer.options.vocab_size == 1024


@pytest.mark.parametrize(("trainer", "tokens"), [("cs336_low", 40_960_000), ("cs336", 327_680_000)])
def test_the_budgets_of_the_course(trainer: str, tokens: int) -> None:
    config = composed("arch=cs336", "size=cs336", "data=tinystories", f"trainer={trainer}")
    assert config.tokens == tokens
    assert config.data.batch_size == 32


def test_where_a_corpus_and_a_tokenizer_lie_is_no_part_of_the_identity(tmp_path: Path) -> None:
    def digest(*overrides: str) -> str:
        return config_hash(composed(*overrides), "d", "32-true")

    files = {name: tmp_path / f"{name}.json" for name in ("one", "same", "other")}
    for name, path in files.items():
        path.write_text(json.dumps({"a": 1 if name == "other" else 0}))
    tokenizers = {name: f"tokenizer.path={path}" for name, path in files.items()}
    one = digest("tokenizer=file", tokenizers["one"])
    assert digest("tokenizer=file", tokenizers["same"]) == one
    assert digest("tokenizer=file", tokenizers["other"]) != one
    stories = digest("data=tinystories")
    assert digest("data=tinystories", "data.path=here") == stories
    assert digest("data=tinystories", "data.revision=v1") == stories
    assert digest("data=tinystories", "tokenizer.vocab_size=512") != stories


def ready(folder: Path) -> Path:
    text = np.frombuffer(b"the dog runs to the end of the line. " * 40, dtype=np.uint8)
    folder.mkdir()
    text.astype("<u2").tofile(folder / "train.bin")
    text[:200].astype("<u2").tofile(folder / "val.bin")
    return folder


def test_ready_tokens_without_a_tokenizer_have_no_bits_per_byte(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    folder = ready(tmp_path / "tokens")
    words = ("data=tokens", f"data.path={folder}", "tokenizer=none", "tokenizer.vocab_size=256")
    answer = train(*words, "name=ready")
    assert answer.code == 0, answer.err
    (run,) = Path("runs/ready").iterdir()
    result = json.loads((run / "result.json").read_text())
    assert result["bits_per_byte"] is None
    assert not (run / "documents.npz").exists()
    assert result["val_tokens"] == 199
    assert math.exp(result["val_loss"]) == pytest.approx(result["perplexity"])
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("val/loss" in row for row in rows)
    assert not any("val/bits_per_byte" in row for row in rows)


def test_ready_tokens_with_their_tokenizer_have_bits_per_byte(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    folder = ready(tmp_path / "tokens")
    answer = train("data=tokens", f"data.path={folder}", "tokenizer=bytes", "name=ready")
    assert answer.code == 0, answer.err
    (run,) = Path("runs/ready").iterdir()
    result = json.loads((run / "result.json").read_text())
    assert not (run / "documents.npz").exists()
    bits = result["val_loss"] * 199 / (math.log(2) * 200)
    assert result["bits_per_byte"] == pytest.approx(bits)


def stories_like_the_course(folder: Path) -> Path:
    """Chapters of the King James Bible in files of TinyStories' names and layout."""
    folder.mkdir()
    chapters = load_documents(DataConfig()).texts
    for name, texts in (("train", chapters[:1180]), ("valid", chapters[1180:])):
        content = "".join(f"{text.strip()}\n<|endoftext|>\n" for text in texts)
        (folder / f"TinyStoriesV2-GPT4-{name}.txt").write_text(content)
    return folder


@pytest.mark.slow
def test_the_base_run_of_the_course_starts_as_it_should(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    answer = train(
        "arch=cs336",
        "size=cs336",
        "data=tinystories",
        f"data.path={stories_like_the_course(tmp_path / 'stories')}",
        "data.batch_size=2",
        "trainer.max_steps=2",
        "trainer.threads=1",
        "trainer.accelerator=cpu",
        "logger=none",
        "name=course",
        small=False,
    )
    assert answer.code == 0, answer.err
    (run,) = Path("runs/course").iterdir()
    result = json.loads((run / "result.json").read_text())
    assert result["parameters"]["total"] == 22_696_448
    assert result["initial_loss"] == pytest.approx(9.26, abs=0.1)
    assert result["tokens"] == 2 * 2 * 256
