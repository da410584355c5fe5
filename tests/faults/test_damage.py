"""Files that rot or are cut: noticed, named, and nothing that was whole is lost with them."""

from __future__ import annotations

import hashlib
import json
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lm_experiments.data import DataConfig, TokenStore, prepare
from lm_experiments.errors import InputError
from lm_experiments.launch.local import train
from lm_experiments.launch.task import Task
from lm_experiments.model import Choice, ModelConfig
from lm_experiments.registry import choose
from lm_experiments.rundir.atomic import write_json
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.training.checkpoints import is_whole, newest_checkpoint
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig, save_config
from lm_experiments.training.logger_config import NoLogger
from lm_experiments.training.optimizers import AdamW
from lm_experiments.training.schedules import Constant

IDENTITY = Identity("c" * 64, "d" * 64)
STEPS, EVERY = 8, 2
NEWEST, BEFORE = "step-00000008.ckpt", "step-00000006.ckpt"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_the_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path, position: int | None = None, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3 if position is None else position] ^= 1 << bit
    path.write_bytes(content)


DAMAGE = {"truncated": truncate, "cut": cut_the_end, "emptied": empty, "flipped": flip}


@pytest.fixture(scope="module")
def whole_run(text_file: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to; its last two checkpoints are there."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    run_dir.mkdir()
    config = RunConfig(
        model=ModelConfig(16, 1, 2, 16, vocab_size=257, ffn=Choice("relu"), d_ff=32),
        data=BatchConfig(name="text", path=str(text_file)),
        tokenizer=choose("tokenizer", "bytes"),
        optimizer=AdamW(),
        schedule=Constant(),
        trainer=TrainerConfig(
            STEPS,
            accelerator="cpu",
            threads=1,
            val_every=4,
            log_every=1,
            checkpoint_every=EVERY,
            keep="checkpoints",
        ),
        logger=NoLogger(),
        cache_dir=str(cache_dir),
    )
    save_config(config, run_dir)
    write_identity(run_dir, IDENTITY)
    assert train(Task(run_dir)).status == "done"
    assert [p.name for p in sorted((run_dir / "checkpoints").iterdir())] == [BEFORE, NEWEST]
    return run_dir


@pytest.fixture
def cut_run(whole_run: Path, tmp_path: Path) -> Path:
    """The same run as a kill just before its result leaves it."""
    run_dir = tmp_path / "run"
    shutil.copytree(whole_run, run_dir)
    (run_dir / "result.json").unlink()
    return run_dir


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    path = newest_checkpoint(run_dir)
    assert path is not None
    assert path.name == NEWEST
    state: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["state_dict"]
    return state


def rows(run_dir: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run_dir / "metrics.jsonl").open()]
    return [{k: v for k, v in row.items() if k != "train/tokens_per_second"} for row in found]


def assert_ends_as(run_dir: Path, whole_run: Path) -> None:
    """Continue a run, and compare every bit of its end with the run nothing happened to."""
    assert train(Task(run_dir)).status == "done"
    expected, found = weights(whole_run), weights(run_dir)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert rows(run_dir) == rows(whole_run)
    assert json.loads((run_dir / "result.json").read_text())["status"] == "done"


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("damaged", [(NEWEST,), (NEWEST, BEFORE)], ids=["newest", "both"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_continued(
    damaged: tuple[str, ...], damage: str, cut_run: Path, whole_run: Path
) -> None:
    for name in damaged:
        DAMAGE[damage](cut_run / "checkpoints" / name)
    shutil.rmtree(cut_run / "wandb", ignore_errors=True)
    (cut_run / "train.log").unlink()
    assert_ends_as(cut_run, whole_run)
    log = (cut_run / "train.log").read_text()
    assert [name for name in (NEWEST, BEFORE) if f"{name} is damaged and is skipped" in log] == [
        *damaged
    ]
    assert sorted(p.name for p in (cut_run / "checkpoints").iterdir()) == [BEFORE, NEWEST]


def test_damaged_checkpoints_do_not_crowd_out_new_ones(cut_run: Path) -> None:
    """A run that starts over and is killed again keeps what it saved meanwhile."""
    for name in (NEWEST, BEFORE):
        flip(cut_run / "checkpoints" / name)
    code = cut_run / "stop.py"
    code.write_text(
        """
import os
from lm_experiments.training import callbacks
save = callbacks.save_checkpoint
def stop(trainer, run_dir):
    save(trainer, run_dir)
    if trainer.global_step == 4:
        os._exit(9)
callbacks.save_checkpoint = stop
"""
    )
    assert train(Task(cut_run, (str(code),))).status == "failed"
    assert "exit code 9" in (cut_run / "result.json").read_text()
    found = newest_checkpoint(cut_run)
    assert found is not None
    assert found.name == "step-00000004.ckpt"


def same(a: Any, b: Any) -> bool:
    """Compare nested values, tensors by their bits."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and [*a] == [*b] and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def positions(size: int, count: int) -> list[int]:
    """Return places in a file: its first and last bytes, and others drawn by a fixed seed."""
    ends = [*range(64), *range(size - 64, size)]
    return ends + random.Random(0).sample(range(size), count)


def test_a_bit_that_flips_in_a_checkpoint_is_noticed_or_changes_nothing(
    whole_run: Path, tmp_path: Path
) -> None:
    original = whole_run / "checkpoints" / NEWEST
    expected = torch.load(original, weights_only=True)
    copy = tmp_path / "step-00000008.ckpt"
    noticed = 0
    for position in positions(original.stat().st_size, 300):
        shutil.copy(original, copy)
        flip(copy, position, bit=position % 8)
        if not is_whole(copy):
            noticed += 1
        else:
            assert same(torch.load(copy, weights_only=True), expected), position
    assert noticed > 200


@pytest.mark.parametrize("store", ["train.bin", "val.bin"])
def test_a_bit_that_flips_in_a_token_store_is_never_trained_on(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "words.txt").write_text("".join(f"word {i} of a text\n" for i in range(400)))
    data, tokenizer = DataConfig("text", str(tmp_path / "words.txt")), choose("tokenizer", "bytes")
    first = prepare(data, tokenizer, tmp_path / "cache")
    expected = {name: facts(getattr(first, name)) for name in ("train", "val")}
    path = first.directory / store
    content = path.read_bytes()
    # The header's text, and the tokens; between them are blanks.
    places = [*range(0, 240, 6), *range(1024, len(content), len(content) // 40)]
    for position in places:
        caplog.clear()
        path.unlink()
        path.write_bytes(content)
        flip(path, position, bit=position % 8)
        again = prepare(data, tokenizer, tmp_path / "cache")
        found = {name: facts(getattr(again, name)) for name in ("train", "val")}
        assert found == expected, position
        assert "is damaged and is built again" in caplog.text, position


def facts(store: Any) -> tuple[Any, ...]:
    counts = (store.documents, store.bytes, store.vocab_size, store.altered)
    return hashlib.sha256(np.asarray(store.tokens).tobytes()).hexdigest(), *counts


@pytest.mark.parametrize(
    "tail",
    [
        b'{"step": 8, "train/lo',
        b'{"step": 8}' + b"\0" * 4096,
        b"\xff\xfe\n[1]\n7\n",
        b'{"stfp": 7, "train/loss": 1.0}\n',
        b'{"step": "7x", "train/loss": 1.0}\n',
    ],
    ids=["torn", "zeros", "garbage", "a key that changed", "a step that changed"],
)
def test_damaged_rows_are_dropped_and_no_others(
    tail: bytes, cut_run: Path, whole_run: Path
) -> None:
    with (cut_run / "metrics.jsonl").open("ab") as file:
        file.write(tail)
    assert_ends_as(cut_run, whole_run)


def hashes(folder: Path) -> dict[str, str]:
    """Return the hash of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


CONTENTS = {
    "empty": b"",
    "torn": b'{"status": "done", "val_lo',
    "not text": b"\xff\xfe\x00\x01",
    "a list": b"[1]",
    "an object of something else": b'{"a": 1}',
}


@pytest.fixture
def two(train: Callable[..., Any]) -> Path:
    """A sweep of two runs, both done."""
    assert train("-m", "seed=0,1", "name=two").code == 0
    return Path("runs/two")


def refused(answer: Any, *words: str) -> None:
    """Assert that an answer is one sentence which names the file."""
    assert answer.code == 2, answer.out + answer.err
    assert len(answer.err.strip().splitlines()) == 1, answer.err
    assert answer.err.startswith("error: ")
    for word in words:
        assert word in answer.err


def test_a_damaged_result_is_named_and_nothing_is_lost(
    two: Path, train: Callable[..., Any]
) -> None:
    [path] = two.glob("*-s1-*/result.json")
    before, content = hashes(two), path.read_bytes()
    for damage, wrong in CONTENTS.items():
        path.write_bytes(wrong)
        answer = train("-m", "seed=0,1", "name=two")
        refused(answer, str(path), "is damaged (", "); remove it")
        after = hashes(two)
        assert {name for name in before if after[name] != before[name]} == {
            str(path.relative_to(two))
        }, damage
    path.unlink()
    answer = train("-m", "seed=0,1", "name=two")
    assert "1 done already, 1 to train" in answer.out
    assert json.loads(path.read_bytes())["val_loss"] == json.loads(content)["val_loss"]


@pytest.mark.slow
def test_a_damaged_plan_is_named_and_no_run_is_lost(two: Path, train: Callable[..., Any]) -> None:
    path = two / "sweep.json"
    results = {p: p.read_bytes() for p in two.glob("*/result.json")}
    planned = json.loads(path.read_bytes())["runs"]
    for wrong in CONTENTS.values():
        path.write_bytes(wrong)
        answer = train("-m", "seed=0,1", "name=two")
        refused(answer, str(path), "is damaged (", "); remove it")
        assert path.read_bytes() == wrong
    path.unlink()
    answer = train("-m", "seed=0,1", "name=two")
    assert answer.code == 0, answer.err
    # What is done is not planned to take time.
    again = json.loads(path.read_bytes())["runs"]
    assert again == [{**row, "seconds": None} for row in planned]
    assert {p: p.read_bytes() for p in two.glob("*/result.json")} == results


@pytest.mark.slow
def test_a_damaged_identity_is_written_again(two: Path, train: Callable[..., Any]) -> None:
    [path] = two.glob("*-s1-*/identity.json")
    content = path.read_bytes()
    (path.parent / "result.json").unlink()
    for wrong in [*CONTENTS.values(), b'{"config_hash": "0", "data_hash": "0"}\n']:
        path.write_bytes(wrong)
        answer = train("-m", "seed=0,1", "name=two")
        assert answer.code == 0, answer.out + answer.err
        assert path.read_bytes() == content
        result = json.loads((path.parent / "result.json").read_bytes())
        identity = json.loads(content)
        hashes = {"config_hash", "data_hash"}
        assert {key: result[key] for key in hashes} == {key: identity[key] for key in hashes}
        (path.parent / "result.json").unlink()


@pytest.mark.slow
def test_a_damaged_configuration_is_named_and_nothing_is_lost(
    two: Path, train: Callable[..., Any]
) -> None:
    [path] = two.glob("*-s1-*/config.yaml")
    before, content = hashes(two), path.read_bytes()
    for wrong in [*CONTENTS.values(), content[:-200], content[: len(content) // 2]]:
        path.write_bytes(wrong)
        answer = train("-m", "seed=0,1", "name=two")
        refused(answer, str(path.parent))
        after = hashes(two)
        assert {name for name in before if after[name] != before[name]} == {
            str(path.relative_to(two))
        }


@pytest.mark.slow
def test_another_arm_in_the_same_folder_touches_no_file_of_the_first(
    two: Path, train: Callable[..., Any]
) -> None:
    before = {run.name: hashes(run) for run in two.iterdir() if run.is_dir()}
    assert train("-m", "seed=0,1", "ffn=relu,swiglu", "name=two").code == 0
    assert train("-m", "seed=0", "trainer.max_steps=4", "name=longer").code == 0
    assert {name: hashes(two / name) for name in before} == before


def test_a_run_continued_elsewhere_leaves_the_one_it_was_copied_from(
    cut_run: Path, whole_run: Path, tmp_path: Path
) -> None:
    (cut_run / "checkpoints" / NEWEST).unlink()
    before = hashes(cut_run)
    copy = tmp_path / "elsewhere" / "run"
    shutil.copytree(cut_run, copy)
    assert_ends_as(copy, whole_run)
    assert hashes(cut_run) == before


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let files grow up to a size; Python ignores the signal, so that writing raises."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_json_file_is_never_half_of_one(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"status": "interrupted"})
    with file_size_limit(1000), pytest.raises(OSError, match="File too large"):
        write_json(path, {"status": "done", "text": "x" * 5000})
    assert json.loads(path.read_text()) == {"status": "interrupted"}
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_a_token_store_is_never_half_of_one(tmp_path: Path) -> None:
    text = tmp_path / "words.txt"
    text.write_text("a few words\n" * 2000)
    data, tokenizer = DataConfig("text", str(text)), choose("tokenizer", "bytes")
    with file_size_limit(8000), pytest.raises((OSError, InputError)):
        prepare(data, tokenizer, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.suffix != ".lock"] == []
    prepared = prepare(data, tokenizer, tmp_path / "cache")
    assert TokenStore.open(prepared.train.path).tokens.shape == prepared.train.tokens.shape
