"""Bad input: one sentence that says what to type, a non-zero exit, and nothing trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SENTENCES = {
    "an unknown component": (["position=ropee"], ["learned, none, olmo2,", "position=rope?"]),
    "an unknown group": (["posision=rope"], ["did you mean position=rope?"]),
    "an unknown choice": (["optimizer=adamx"], ["optimizer=adamx", "adamw"]),
    "an unknown key": (["model.d_modle=32"], ["did you mean model.d_model?"]),
    "an added key": (["+model.depth=3"], ["model.depth is not a key"]),
    "an option of another component": (
        ["position=none", "model.position.theta=1"],
        ["position=none has no option theta"],
    ),
    "an option of another optimizer": (
        ["optimizer=sgd", "optimizer.beta1=0.5"],
        ["optimizer=sgd has no option beta1", "optimizer.momentum"],
    ),
    "an option of another corpus": (
        ["data=kjv", "data.path=null", "data.max_bytes=9"],
        ["data.max_bytes=9 is not read by data=kjv; type data=hf"],
    ),
    "a tokenizer without its file": (["tokenizer=file"], ["tokenizer.path is not set"]),
    "a key by its last word": (["lr=1e-3"], ["lr is not a key; did you mean optimizer.lr?"]),
    "a key added by its last word": (["+lr=1e-3"], ["lr is not a key; did you mean optimizer.lr?"]),
    "a key by another name": (["n_embd=64"], ["did you mean model.d_model?"]),
    "a choice by another name": (["activation=relu"], ["did you mean ffn=relu?"]),
    "a choice of another group": (["norm=swiglu"], ["norm=swiglu is not known", "ffn=swiglu?"]),
    "a key that a section lacks": (["trainer.foo=3"], ["the keys of trainer are trainer.max_st"]),
    "a word for the model": (["model=gpt2"], ["model=gpt2 is not", "did you mean arch=gpt2?"]),
    "a part taken out": (["~logger"], ["nothing can be taken out", "type logger=none"]),
    "null for a number": (
        ["optimizer.clip_norm=null"],
        ["optimizer.clip_norm=null is not a number", "0 turns clipping off"],
    ),
    "a directory of Hydra's": (["hydra.run.dir=x"], ["hydra.run.dir=x is not read", "runs_dir="]),
    "another sweeper": (
        ["-m", "hydra/sweeper=ax"],
        ["is not read", "-m key=a,b", "tune:", "=optuna"],
    ),
    "another launcher": (
        ["-m", "hydra/launcher=joblib"],
        ["joblib is not", "basic, ray", "without one"],
    ),
    "two studies": (["-m", "study=cs336,glu"], ["study=cs336 and study=glu"]),
    "a list without brackets": (
        ["-m", "study=glu", "study.seeds=0,1"],
        ["error: study.seeds=0,1 is several values", "type study.seeds=[0,1] for a list"],
    ),
    "a study that is no file": (["-m", "study=./no.yaml"], ["./no.yaml: there is no such file"]),
    "a study's key without it": (["-m", "study.margin=1"], ["choose one with study=NAME"]),
    "a word that needs quotes": (["name=a#b"], ["type 'name=\"a#b\"'"]),
    "a list that needs quotes": (
        ["-m", "study=glu", "+study.arms.new=[ffn=relu]"],
        ["""type '+study.arms.new=["ffn=relu"]'"""],
    ),
    "a list without -m": (["placement=pre,post"], ["add -m", "-m", "placement=pre,post"]),
    "a value typed as a flag": (["--seed", "1"], ["without dashes", "seed=1"]),
    "an unknown flag": (["--lr=0.1"], ["without dashes", "did you mean optimizer.lr?"]),
    "a space after a comma": (["placement=pre,", "post"], ["without spaces", "placement=pre,post"]),
    "heads that do not divide": (["model.n_heads=3"], ["16 % 3 = 1", "model.n_heads=2"]),
    "an odd head width": (["model.d_model=6", "model.n_heads=2"], ["head width 3", "even number"]),
    "a missing path": (["data.path=/no/such/file"], ["/no/such/file does not exist"]),
    "no path": (["data.path=null"], ["data.path"]),
    "a short corpus": (
        ["model.context_length=100000"],
        ["model.context_length=100000", "100001", "the corpus has"],
    ),
    "a vocabulary too large": (
        ["tokenizer=bpe", "tokenizer.vocab_size=90000"],
        ["tokenizer.vocab_size=90000", "or less"],
    ),
    "a word for a number": (["trainer.max_steps=many"], ["trainer.max_steps='many'", "number"]),
    "a negative seed": (["seed=-1"], ["seed=-1"]),
    "a warm-up longer than the run": (["schedule.warmup_steps=9"], ["trainer.max_steps=3"]),
    "a name that leads elsewhere": (["name=../../elsewhere"], ["without slashes"]),
    "an unknown mode": (["logger=wandb", "logger.mode=onlin"], ["offline, disabled"]),
    "a strategy for several devices": (
        ["trainer.strategy=ddp"],
        ["trainer.strategy=ddp", "trainer.devices=2 or more"],
    ),
    "an unknown strategy": (
        ["trainer.devices=2", "trainer.strategy=dp"],
        ["trainer.strategy=dp", "auto, ddp, fsdp"],
    ),
    "a batch that devices cannot share": (
        ["trainer.devices=3", "data.batch_size=16"],
        ["data.batch_size=16", "trainer.devices=3", "data.batch_size=18"],
    ),
    "a file of code that is not there": (["code_paths=[no.py]"], ["no.py"]),
    "a tolerance that cannot be met": (
        ["ffn=swiglu", "model.d_ff=32", "match_tolerance=0.001"],
        ["nearest width, 21", "match_tolerance="],
    ),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_bad_input_is_one_sentence(case: str, train: Callable[..., Any]) -> None:
    arguments, expected = SENTENCES[case]
    answer = train(*arguments)
    assert answer.code == 2
    assert answer.err.startswith("error: ")
    assert len(answer.err.strip().splitlines()) == 1, answer.err
    for words in expected:
        assert words in answer.err
    assert not Path("runs").exists()


def test_a_sweep_is_checked_whole_before_its_first_run(train: Callable[..., Any]) -> None:
    answer = train("-m", "model.n_heads=2,3")
    assert answer.code == 2
    assert "16 % 3 = 1" in answer.err
    assert not Path("runs").exists()


def test_a_file_of_code_that_does_not_load(train: Callable[..., Any]) -> None:
    Path("bad.py").write_text("from lm_experiments import nothing_like_it")
    answer = train("code_paths=[bad.py]")
    assert answer.code == 2
    assert "bad.py does not load: ImportError" in answer.err


@pytest.mark.parametrize("call", ["sys.exit()", "sys.exit(0)", "raise SystemExit('no GPU')"])
def test_a_file_of_code_that_ends_the_program(call: str, train: Callable[..., Any]) -> None:
    Path("ends.py").write_text(f"import sys\n{call}\n")
    answer = train("code_paths=[ends.py]")
    assert answer.code == 2
    assert "code_paths: ends.py does not load: SystemExit: " in answer.err
    assert len(answer.err.strip().splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"caf\xe9 au lait" * 100])
def test_a_text_that_cannot_be_read(content: bytes, train: Callable[..., Any]) -> None:
    Path("bad.txt").write_bytes(content)
    answer = train("data.path=bad.txt")
    assert answer.code == 2
    assert "bad.txt" in answer.err
    assert len(answer.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("file", "content", "words", "sentence"),
    [
        ("norm/own", "name: rmsnorm", ["norm=own"], "of norm=... does not say what its keys be"),
        ("norm/own", "name: rmsnorm", ["norm=own"], "must be # @package model.norm"),
        ("arch/own", "model: {d_ff: 9}", ["arch=own"], "must be # @package _global_"),
        ("size/own", "a: 1\na: 2", ["size=own"], "own.yaml, line 2: found duplicate key a."),
        ("size/own", "a: [1", ["size=own"], "own.yaml, line 1: expected ',' or ']'"),
    ],
)
def test_a_bad_file_of_choices(
    file: str, content: str, words: list[str], sentence: str, train: Callable[..., Any]
) -> None:
    path = Path(f"own/{file}.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    answer = train(f"hydra.searchpath=[file://{Path('own').resolve()}]", *words)
    assert answer.code == 2
    assert sentence in answer.err
    assert len(answer.err.strip().splitlines()) == 1, answer.err


def test_a_folder_written_by_something_else_is_left_alone(train: Callable[..., Any]) -> None:
    assert train("name=mine").code == 0
    [directory] = [path for path in Path("runs/mine").iterdir() if path.is_dir()]
    for path in directory.iterdir():
        if path.is_file():
            path.unlink()
    (directory / "notes.txt").write_text("somebody else's")
    answer = train("name=mine")
    assert answer.code == 2
    assert "is not a run directory" in answer.err
    assert (directory / "notes.txt").exists()
