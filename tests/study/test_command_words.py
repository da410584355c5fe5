"""The words of a command: what was meant by them, what is refused, and how Hydra gets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_experiments.errors import InputError
from lm_experiments.study.choices import choices, groups
from lm_experiments.study.hints import SYNONYMS, is_key, meant, suggestions
from lm_experiments.study.words import check_words, prepared_words, with_quotes


def test_every_synonym_stands_for_something_and_is_no_key_itself() -> None:
    assert [key for key in SYNONYMS.values() if not is_key(key)] == []
    assert [word for word in SYNONYMS if is_key(word)] == []


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("lr", "optimizer.lr"),
        ("layers", "model.n_layers"),
        ("heads", "model.n_heads"),
        ("batch_size", "data.batch_size"),
        ("batch-size", "data.batch_size"),
        ("steps", "trainer.max_steps"),
        ("gpus", "trainer.devices"),
        ("epochs", "trainer.max_steps"),
        ("dropout", "model.dropout"),
        ("model.width", "model.d_model"),
        ("dim", "model.d_model"),
        ("vocab", "tokenizer.vocab_size"),
        ("context", "model.context_length"),
        ("SEQ_LEN", "model.context_length"),
        ("train.max_steps", "trainer.max_steps"),
        ("dropuot", "model.dropout"),
    ],
)
def test_keys_by_other_names(word: str, key: str) -> None:
    assert suggestions(word) == [key]


def test_choices_by_their_value() -> None:
    assert suggestions("mlp_type", "geglu") == ["ffn=geglu"]
    assert suggestions("model", "gpt2") == ["arch=gpt2"]
    assert suggestions("experiment", "no such study") == ["study"]
    # Several groups have it.
    assert suggestions("something", "none") == []
    assert suggestions("eps") == ["optimizer.eps", "model.norm.eps"]
    assert meant("something") == "see python scripts/train.py --help."


def test_groups_are_the_folders_and_the_components() -> None:
    assert {"arch", "study", "optimizer", "placement"} <= set(groups())
    assert "hydra" not in groups()
    assert {"gemma2", "none"} <= set(choices("norm"))
    assert choices("no such group") == []


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("hydra.sweep.dir=x", "runs_dir="),
        ("hydra.output_subdir=x", "runs_dir="),
        ("+hydra.job.chdir=true", "stays in the folder"),
        ("hydra/sweeper=basic", "-m key=a,b"),
        ("hydra.sweeper.params.seed=1", "-m key=a,b"),
        ("~position", "type position=none"),
        ("~optimizer", "type optimizer=...; optimizer can be adamw"),
        ("logger=null", "type logger=none"),
        ("~model.dropout", "another value"),
    ],
)
def test_what_nothing_would_follow_is_refused(word: str, sentence: str) -> None:
    with pytest.raises(InputError, match=r"is not read|nothing can be taken out") as refused:
        check_words(["seed=1", word])
    assert sentence in str(refused.value)


def test_words_that_are_followed_are_not_refused() -> None:
    check_words(["hydra/launcher=ray", "hydra.launcher.ray.init.num_cpus=2", "~study.arms.SiLU"])
    check_words(["hydra/sweeper=lm_experiments", "hydra.verbose=true", "arch=null", "name=null"])


def test_a_command_needs_no_words() -> None:
    assert prepared_words([]) == []


def test_options_may_stand_between_words() -> None:
    words = ["seed=1", "--config-dir", "mine", "name=x", "-m", "--config-name=train"]
    assert prepared_words(words) == [
        "--config-dir",
        "mine",
        "-m",
        "--config-name=train",
        "seed=1",
        "name=x",
    ]


def test_a_study_is_changed_by_words() -> None:
    words = ["study=glu", "study.margin=0.1", "seed=1", "-m"]
    assert prepared_words(words) == ["-m", "study=glu", "++study.margin=0.1", "seed=1"]
    assert prepared_words(["study=glu", "ladder=size", "study.ladder.sizes=[a,b]"])[1:] == [
        "++study.ladder=null",
        "++study.ladder={by:size}",
        "++study.ladder.sizes=[a,b]",
    ]
    assert prepared_words(["study=glu", "ladder=null"])[1:] == ["++study.ladder=null"]
    assert prepared_words(["study=glu", "study.seeds={first:5}"])[1:] == [
        "++study.seeds=null",
        "++study.seeds={first:5}",
    ]


@pytest.mark.parametrize(
    "typed", ["{0}/mine.yaml", "{0}/mine", "mine.yaml", "./mine", "sub/../mine"]
)
def test_a_study_is_found_by_its_path(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("mine.yaml").write_text("name: mine")
    [word] = prepared_words([f"study={typed.format(tmp_path)}"])
    assert word == f"study={json.dumps(str(tmp_path / 'mine'))}"


def test_a_file_that_is_no_study(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("[1, 2]")
    with pytest.raises(InputError, match=r"list\.yaml is not a study"):
        prepared_words([f"study={tmp_path}/list"])


@pytest.mark.parametrize(
    ("typed", "quoted"),
    [
        ("name=实验", 'name="实验"'),
        ("data.path=~/a,~/b", 'data.path="~/a","~/b"'),
        ("data.separator=<|endoftext|>", 'data.separator="<|endoftext|>"'),
        ("+study.arms={x:[norm=none]}", '+study.arms={x:["norm=none"]}'),
        ('name=it"s', 'name="it\\"s"'),
        ("placement=pre,", None),
        ("placement", None),
    ],
)
def test_quotes_where_they_are_needed(typed: str, quoted: str | None) -> None:
    assert with_quotes(typed) == quoted
