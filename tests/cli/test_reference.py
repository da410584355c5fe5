"""What a user reads about each key and each choice: complete, true, and the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.commands import ROOT, Answer
from hydra.core.global_hydra import GlobalHydra

from lm_experiments.cli import keys_page
from lm_experiments.cli.help import WIDTH, asked_for, key_lines
from lm_experiments.cli.reference import Entry, all_groups, choice_words, entries
from lm_experiments.data.config import CORPORA
from lm_experiments.study import sweeper
from lm_experiments.study.choices import choices, offer_choices


@pytest.fixture(scope="module")
def listed() -> Iterator[list[Entry]]:
    offer_choices()
    sweeper.register()
    yield entries()
    GlobalHydra.instance().clear()


def test_the_page_of_keys_is_that_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Taken out of the environment while the page is written.
    monkeypatch.delenv("LM_EXPERIMENTS_CACHE")
    keys_page.main(str(tmp_path / "keys.md"))
    committed = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    assert (tmp_path / "keys.md").read_text(encoding="utf-8") == committed, (
        "docs/keys.md is not what the code says; run "
        "`python -m lm_experiments.cli.keys_page docs/keys.md` and commit the difference."
    )


@pytest.mark.parametrize("group", all_groups())
def test_every_choice_is_explained_in_one_sentence(group: str) -> None:
    words = choice_words(group)
    assert set(choices(group)) <= set(words)
    for name, text in words.items():
        assert text[:-1] and text.endswith("."), f"{group}={name} is not explained"
        assert "Published" not in text and "\n" not in text


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("trainer.max_steps", "whole number, 1 or more"),
        ("trainer.threads", "whole number, 1 or more, or null"),
        ("trainer.strategy", "auto, ddp, fsdp"),
        ("model.dropout", "number, 0 or more, and below 1"),
        ("model.logit_softcap", "number, positive, or null"),
        ("data.val_fraction", "number, between 0 and 1"),
        ("data.test_fraction", "number, 0 or more"),
        ("data.name", ", ".join(sorted(CORPORA))),
        ("compile", "true or false, or auto"),
        ("on_failure", "continue or stop"),
        ("retries", "whole number, 0 or more"),
        ("code_paths", "list, [a,b]"),
        ("runs_dir", "text"),
    ],
)
def test_what_a_key_can_be_is_what_its_check_allows(
    listed: list[Entry], name: str, allowed: str
) -> None:
    assert [entry.allowed for entry in listed if entry.key.name == name] == [allowed]


def test_the_help_of_all_keys_fits_a_terminal(listed: list[Entry]) -> None:
    lines = "\n".join(key_lines(listed)).splitlines()
    assert max(map(len, lines)) <= WIDTH
    place = lines.index("  trainer.max_steps=300")
    assert lines[place + 1] == "      The budget, in optimizer steps."


def test_help_on_keys_and_groups(command: Callable[..., Answer]) -> None:
    answer = command("train", "--help", "schedule.min_ratio", "placement")
    assert answer.code == 0, answer.err
    assert "schedule, with schedule=wsd" in answer.out
    assert "schedule.min_ratio=0.1  (number, between 0 and 1)" in answer.out
    assert "placement=post\n      norm(x + f(x)), no final norm" in answer.out
    assert "max_steps" not in answer.out


def test_help_is_asked_for_by_words_that_are_no_values() -> None:
    assert asked_for(["--help", "--config-dir", "mine", "norm", "seed=1"]) == ["norm"]
    assert asked_for(["--config-dir", "mine", "norm"]) == []


def test_help_on_a_key_says_what_another_value_does(command: Callable[..., Answer]) -> None:
    answer = command("train", "trainer.threads", "-h")
    assert "Where and how a run is executed, and who watches." in " ".join(answer.out.split())


def test_help_on_an_unknown_word_is_one_sentence(refused: Callable[..., str]) -> None:
    assert "nromx is neither a key nor a group; did you mean norm?" in refused(
        "train", "--help", "nromx"
    )
