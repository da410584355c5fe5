"""Text from a run directory: what is written, and one sentence where nothing can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.commands import Answer, imported

from lm_experiments.cli import generate as generate_command
from lm_experiments.data import prepare
from lm_experiments.evaluation import Sampling, stream
from lm_experiments.model import Choice, ModelConfig, build_model
from lm_experiments.registry import choose
from lm_experiments.rundir.results import DONE, Result, write_result
from lm_experiments.training.config import (
    BatchConfig,
    RunConfig,
    TrainerConfig,
    load_config,
    save_config,
)
from lm_experiments.training.logger_config import NoLogger
from lm_experiments.training.optimizers import AdamW
from lm_experiments.training.schedules import Constant

TEXT = "the cat sat on the mat; the dog sat on the log.\n" * 40
VOCABULARY = {"chars": len(set(TEXT)) + 2, "bytes": 257}


@pytest.fixture
def generate(command: Callable[..., Answer]) -> Callable[..., str]:
    """Call the command, which has to succeed; return what it printed."""

    def call(*arguments: object) -> str:
        answer = command("generate", *arguments)
        assert answer.code == 0, answer.err
        return answer.out

    return call


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run with a checkpoint, of a model of characters."""
    return make_run(tmp_path, "chars")


def make_run(folder: Path, tokenizer: str) -> Path:
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    config = config_of(folder, tokenizer)
    run_dir = folder / "runs" / "sweep" / "run"
    (run_dir / "checkpoints").mkdir(parents=True)
    save_config(config, run_dir)
    weights = build_model(config.model, seed=2).state_dict()
    saved = {"state_dict": {f"model.{key}": value for key, value in weights.items()}}
    torch.save(saved, run_dir / "checkpoints" / "step-00000003.ckpt")
    return run_dir


def config_of(folder: Path, tokenizer: str) -> RunConfig:
    return RunConfig(
        model=ModelConfig(
            d_model=16,
            n_layers=1,
            n_heads=2,
            context_length=8,
            vocab_size=VOCABULARY[tokenizer],
            ffn=Choice("relu"),
            d_ff=16,
        ),
        data=BatchConfig(name="text", path=str(folder / "text.txt")),
        tokenizer=choose("tokenizer", tokenizer),
        optimizer=AdamW(),
        schedule=Constant(),
        trainer=TrainerConfig(),
        logger=NoLogger(),
        cache_dir=str(folder / "cache"),
    )


def test_writes_the_prompt_and_what_the_model_continues(
    generate: Callable[..., str], run_dir: Path
) -> None:
    config = load_config(run_dir)
    tokenizer = prepare(config.data, config.tokenizer, Path(config.cache_dir)).tokenizer
    ids = list(
        stream(
            build_model(config.model, seed=2).eval(),
            tokenizer.encode("the cat").tolist(),
            30,
            Sampling(0.8, top_k=4, top_p=0.9),
            torch.Generator().manual_seed(5),
            tokenizer.end_of_text_id,
        )
    )
    arguments = ["--prompt", "the cat", "--tokens", "30", "--seed", "5", "--top-k", "4"]
    out = generate(run_dir, *arguments, "--top-p", "0.9")
    assert out == f"the cat{tokenizer.decode(ids)}\n"


def test_samples_have_successive_seeds(generate: Callable[..., str], run_dir: Path) -> None:
    both = generate(run_dir, "--tokens", 9, "--seed", 3, "--samples", 2)
    parts = [
        f"--- seed {seed} ---\n{generate(run_dir, '--tokens', 9, '--seed', seed)}"
        for seed in (3, 4)
    ]
    assert both == "".join(parts)
    assert parts[0][15:] != parts[1][15:]


def test_several_prompts_are_each_continued_as_alone(
    generate: Callable[..., str], run_dir: Path
) -> None:
    def alone(prompt: str, seed: int) -> str:
        return generate(run_dir, "--prompt", prompt, "--tokens", 20, "--seed", seed)

    both = ("--prompt", "the cat", "--prompt", "a")
    assert generate(run_dir, *both, "--tokens", 20, "--samples", 2) == "".join(
        f"--- prompt {number}, seed {seed} ---\n{alone(prompt, seed)}"
        for seed in (0, 1)
        for number, prompt in ((1, "the cat"), (2, "a"))
    )


def test_without_a_prompt_the_text_starts_after_an_end_of_text(
    generate: Callable[..., str], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[list[int]] = []

    def spy(model: object, prompt: list[int], *rest: Any) -> Iterator[int]:
        prompts.append(prompt)
        yield from ()

    monkeypatch.setattr(generate_command, "stream", spy)
    generate(run_dir, "--prompt", "")
    assert prompts == [[VOCABULARY["chars"] - 1]]


def test_the_run_directory_is_only_read(generate: Callable[..., str], run_dir: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    generate(run_dir, "--tokens", 2)
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")} == before


@pytest.mark.parametrize("text", ["é", "a🙂b", "no", "", "end in half a 🙂"])
def test_parts_hold_whole_characters(tmp_path: Path, text: str) -> None:
    config = config_of(tmp_path, "bytes")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    tokenizer = prepare(config.data, config.tokenizer, tmp_path / "cache").tokenizer
    ids = tokenizer.encode(text).tolist()
    if "half" in text:
        ids = ids[:-1]
    parts = list(generate_command._text_parts(ids, tokenizer))
    assert "".join(parts) == tokenizer.decode(ids)
    assert not any("\ufffd" in part for part in parts[:-1])


def test_what_is_no_run_is_refused(
    refused: Callable[..., str], run_dir: Path, tmp_path: Path
) -> None:
    assert "is not a run directory" in refused("generate", tmp_path / "absent")
    assert f"is a sweep; name one of its runs, for example {run_dir}." in refused(
        "generate", run_dir.parent
    )
    next(run_dir.glob("checkpoints/*.ckpt")).unlink()
    assert "has no checkpoint yet" in refused("generate", run_dir)


def test_unknown_characters_are_named(refused: Callable[..., str], run_dir: Path) -> None:
    assert "--prompt holds 'Z' 'ü', which" in refused(
        "generate", run_dir, "--prompt", "the Zoü cat Zü"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--temperature", "-1"], "temperature=-1 must be"),
        (["--top-k", "0"], "top_k=0 must be"),
        (["--top-p", "1.5"], "top_p=1.5 must be"),
        (["--samples", "0"], "--samples 0 must be"),
        (["--tokens", "0"], "0 tokens cannot be generated"),
        (["--prompt", "the", "cat"], "cat is not understood"),
        (["code_paths=absent.py"], "absent.py, which is not a file"),
    ],
)
def test_bad_options_are_refused(
    refused: Callable[..., str], run_dir: Path, arguments: list[str], expected: str
) -> None:
    assert expected in refused("generate", run_dir, *arguments)


@pytest.mark.parametrize("with_result", [True, False])
def test_another_text_than_the_one_trained_on_is_refused(
    generate: Callable[..., str],
    refused: Callable[..., str],
    run_dir: Path,
    tmp_path: Path,
    with_result: bool,
) -> None:
    """With a result any change shows, without one a vocabulary of another size."""
    config = load_config(run_dir)
    data_hash = prepare(config.data, config.tokenizer, Path(config.cache_dir)).data_hash
    changed = TEXT.replace("cat", "tac")
    if with_result:
        write_result(run_dir, Result(DONE, "norm", 0, data_hash=data_hash))
        generate(run_dir, "--tokens", 1)
    else:
        changed += "XYZ" * 100
        changed = changed[::-1]
    (tmp_path / "text.txt").write_text(changed, encoding="utf-8")
    assert "put the old text back" in refused("generate", run_dir, "--tokens", 1)


def test_a_component_of_the_users_own_has_to_be_named_again(
    refused: Callable[..., str], run_dir: Path
) -> None:
    path = run_dir / "config.yaml"
    text = path.read_text(encoding="utf-8").replace("name: rmsnorm", "name: elsewhere")
    path.write_text(text, encoding="utf-8")
    assert "code_paths=[my_block.py]" in refused("generate", run_dir)
    path.write_text(text.replace("code_paths: []", "code_paths: [n.py]"), encoding="utf-8")
    assert "norm=elsewhere is not a component" in (error := refused("generate", run_dir))
    assert error.endswith("code_paths=[n.py]\n")


def test_starts_without_the_training_libraries() -> None:
    assert imported("generate", ["lightning", "wandb", "torch._dynamo"]) == "[]"
