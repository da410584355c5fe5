"""The command that prepares a corpus ahead of time, with the words of the training command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from harness.commands import Answer

from lm_experiments.data import encode_corpus


@pytest.fixture
def prepare_data(
    command: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    """``scripts/prepare_data.py`` with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    return partial(command, "prepare_data", f"cache_dir={tmp_path / 'cache'}")


@pytest.fixture
def stories(tmp_path: Path) -> Path:
    folder = tmp_path / "stories"
    folder.mkdir()
    for name, count in (("train", 30), ("valid", 4)):
        lines = "".join(f"The dog {index} ran.\n<|endoftext|>\n" for index in range(count))
        (folder / f"TinyStoriesV2-GPT4-{name}.txt").write_text(lines)
    return folder


def test_it_says_what_there_is_and_what_there_was(
    prepare_data: Callable[..., Answer], stories: Path
) -> None:
    said = prepare_data("data=tinystories", f"data.path={stories}", "tokenizer=bytes")
    assert said.code == 0, said.err
    assert "text of about 1.0 kB" in said.out
    train = 30 * len("The dog 10 ran.") - 10
    assert f"train: {train + 30} tokens, 30 documents, {train} bytes of text" in said.out
    assert f"val: {4 * 15} tokens, 4 documents, {4 * 14} bytes of text (56 bytes)" in said.out
    assert "\nvalidation text: 4 of 4 documents occur in training; none has 13 words\n" in said.out
    assert "vocabulary: 257" in said.out
    assert "cache/tinystories-bytes-" in said.out


def test_it_is_safe_to_repeat(
    prepare_data: Callable[..., Answer], stories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("data=tinystories", f"data.path={stories}", "tokenizer=bytes")
    first = prepare_data(*words)
    monkeypatch.setattr(encode_corpus, "Dataset", lambda *_: pytest.fail("it was prepared again"))
    again = prepare_data(*words)
    assert (again.code, again.err) == (0, "")
    assert again.out.splitlines()[:4] == first.out.splitlines()[-5:-1]


def test_the_words_of_a_training_command_are_understood(
    prepare_data: Callable[..., Answer], stories: Path
) -> None:
    said = prepare_data(
        "arch=gpt2",
        "size=cs336",
        "data=text",
        f"data.path={stories}",
        "tokenizer=chars",
        "trainer.accelerator=cuda",
        "seed=3",
    )
    assert said.code == 0, said.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data=tinystorys",), "data=tinystorys is not known; data can be"),
        (("data=text",), "data=text has no data.path; type data.path="),
        (("-m", "data=kjv"), "-m cannot be used"),
        (("data=hf", "data.path=nowhere"), "data.path=nowhere is not a folder"),
        (("data=tokens", "data.path=x"), "tokenizer.vocab_size is not set"),
        (("data=tokens", "data.path=x", "tokenizer=chars"), "tokenizer=chars learns from text"),
    ],
)
def test_what_cannot_be_prepared_is_one_sentence(
    prepare_data: Callable[..., Answer], words: tuple[str, ...], message: str
) -> None:
    said = prepare_data(*words)
    assert said.code == 2
    assert message in said.err
    assert "Traceback" not in said.err


def test_its_help_is_its_own(prepare_data: Callable[..., Answer]) -> None:
    said = prepare_data("--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Download and encode the corpus that a training command names")
    assert "python scripts/prepare_data.py data=tinystories" in said.out
    assert (
        "\ntokenizer: bpe, bpe_10k, bpe_32k, bytes, chars, file, gpt2, none, symbols\n" in said.out
    )
    assert "\n  data.val_fraction=0.03\n" in said.out
    # What says nothing of the text is not listed.
    for key in ("data.batch_size", "trainer.", "model.", "optimizer", "runs_dir"):
        assert key not in said.out
