"""Runs on two devices, from the command line to their directories; the devices are processes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lm_experiments.launch.local import train as train_task
from lm_experiments.launch.task import Task
from lm_experiments.rundir.atomic import remove
from lm_experiments.rundir.documents import read_document_losses
from lm_experiments.training.checkpoints import checkpoints_of, load_model, newest_checkpoint
from lm_experiments.training.config import load_config

Train = Callable[..., Any]
TWO = ("trainer.devices=2", "trainer.accelerator=cpu", "trainer.threads=2")
# A norm that writes down its process, and on one rank does what the environment says.
WATCHING = '''
import os, signal, sys
from pathlib import Path
import torch
from lm_experiments.model import register
from lm_experiments.model.norms import RMSNorm, NormOptions

@register("norm", "watching", NormOptions)
class Watching(RMSNorm):
    """RMSNorm that ends as the environment says."""
    calls = 0
    def forward(self, x):
        rank = os.environ.get("RANK", "none")
        Path("pids").mkdir(exist_ok=True)
        Path("pids", str(os.getpid())).write_text(rank)
        Watching.calls += 1
        if Watching.calls == 20 and rank == os.environ.get("WATCH_RANK"):
            what = os.environ["WATCH"]
            if what == "raise":
                raise ValueError("this rank has had enough")
            if what == "nan":
                return super().forward(x) * float("nan")
            if what == "exit":
                sys.exit()
            if what == "_exit":
                os._exit(0)
            os.kill(os.getpid(), getattr(signal, what))
        return super().forward(x)
'''


def only_run(name: str) -> Path:
    [run] = [path for path in Path("runs", name).iterdir() if path.is_dir()]
    return run


def result(run: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((run / "result.json").read_text())
    return values


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").open()]


def numbers(run: Path, key: str) -> list[float]:
    return [row[key] for row in rows(run) if key in row]


@pytest.fixture
def watching(train: Train, monkeypatch: pytest.MonkeyPatch) -> Train:
    Path("watching.py").write_text(WATCHING)

    def call(*arguments: str, rank: int | None = None, what: str = "") -> Any:
        monkeypatch.setenv("WATCH_RANK", str(rank))
        monkeypatch.setenv("WATCH", what)
        return train(
            "norm=watching", "code_paths=[watching.py]", "trainer.max_steps=12", *arguments
        )

    return call


def living() -> list[str]:
    """Return the processes of `watching` that have not ended."""
    ranks = [path for path in Path("pids").iterdir() if path.read_text() != "none"]
    return [path.name for path in ranks if Path("/proc", path.name).exists()]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_two_devices_train_as_one(strategy: str, precision: str, train: Train) -> None:
    """The gradient is clipped at each step, in micro-batches, by an optimizer that is fused.

    Between strategies float32 sums are taken in another order: 1e-5 of the loss after six steps.
    In bfloat16 it is the products that differ, by 2^-8 each.
    """
    Path("texts").mkdir()
    for i in range(60):
        Path("texts", f"{i:02}.txt").write_text(f"text {i} of a few words " * (1 + i % 9))
    common = (
        "data.path=texts",
        # 141 windows: the last batch of the first device has no counterpart on the second.
        "data.val_fraction=0.33",
        "trainer.max_steps=6",
        "trainer.micro_batch_size=3",
        f"trainer.precision={precision}",
        "optimizer.clip_norm=0.1",
        "data.eval_batch_size=7",
    )
    assert train(*common, "name=one", "trainer.accelerator=cpu").code == 0
    answer = train(*common, *TWO, "name=two", f"trainer.strategy={strategy}")
    assert answer.code == 0, answer.err
    one, two = only_run("one"), only_run("two")
    tolerance = 1e-5 if precision == "32-true" else 2e-3
    for key in ("train/loss", "val/loss", "train/gradient_norm"):
        loose = 10 * tolerance if "norm" in key else tolerance
        assert numbers(two, key) == pytest.approx(numbers(one, key), rel=loose), key
    assert min(numbers(one, "train/gradient_norm")) > 0.1
    alone, shared = result(one), result(two)
    for key in ("val_tokens", "tokens", "config_hash", "precision", "parameters"):
        assert alone[key] == shared[key], key
    assert (alone["world_size"], alone["strategy"]) == (1, "single")
    documents, parts = read_document_losses(one), read_document_losses(two)
    assert documents is not None and parts is not None
    assert len(documents.tokens) > 10
    np.testing.assert_array_equal(documents.tokens, parts.tokens)
    np.testing.assert_allclose(parts.sums, documents.sums, rtol=10 * tolerance)
    assert (shared["world_size"], shared["strategy"], shared["threads"]) == (2, strategy, 1)
    assert load_model(two, load_config(two)).head.weight.dtype == torch.float32


def test_a_sweep_of_runs_on_two_devices(watching: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trainings in two directories, whatever a cluster or another job has exported."""
    foreign = {
        "MASTER_PORT": "1",
        "MASTER_ADDR": "192.0.2.1",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NAME": "train",
        "SLURM_NTASKS": "5",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "3",
        "SLURM_NODEID": "0",
        "SLURM_STEP_ID": "0",
    }
    for key, value in foreign.items():
        monkeypatch.setenv(key, value)
    answer = watching(
        "-m", "placement=pre,post", *TWO, "trainer.strategy=ddp", "name=grid",
        "logger=wandb", "logger.mode=offline", "trainer.max_steps=4",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert {key: os.environ[key] for key in foreign} == foreign
    assert not {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"} & set(os.environ)
    runs = sorted(path.parent for path in Path("runs/grid").glob("*/config.yaml"))
    assert [run.name.split("-")[0] for run in runs] == ["post", "pre"]
    for run in runs:
        assert (result(run)["world_size"], result(run)["status"]) == (2, "done")
        steps = [row["step"] for row in rows(run) if "train/loss" in row]
        assert steps == [1, 2, 3, 4]
        assert (run / "train.log").read_text().count(" trains ") == 1
        assert len(list(run.glob("wandb/offline-run-*"))) == 1
        assert not list(run.glob("train.rank*"))
    ranks = [path.read_text() for path in Path("pids").iterdir()]
    # The command itself has looked at each arm's start.
    assert sorted(set(ranks) - {"none"}) == ["0", "1"]
    assert len(ranks) - ranks.count("none") == 4
    assert living() == []
    kept = {path.name for path in Path().iterdir()}
    assert kept == {"runs", "pids", "watching.py"}


def test_two_runs_at_once_use_ports_of_their_own(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert train("-m", "seed=0,1", *TWO, "name=both").code == 0
    runs = sorted(path for path in Path("runs/both").iterdir() if path.is_dir())
    losses = [result(run)["val_loss"] for run in runs]
    for run in runs:
        (run / "result.json").unlink()
        for path in (run / "checkpoints").iterdir():
            path.unlink()
    endings = {}

    def again(run: Path) -> None:
        endings[run.name] = train_task(Task(run, devices=2)).status

    threads = [threading.Thread(target=again, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(endings.values()) == {"done"}
    assert [result(run)["val_loss"] for run in runs] == losses


@pytest.mark.parametrize(
    ("rank", "what", "kind", "message"),
    [
        (1, "SIGKILL", "ProcessDied", "The process of rank 1 was killed by signal 9."),
        (0, "SIGKILL", "ProcessDied", "The process of rank 0 was killed by signal 9."),
        (1, "raise", "ValueError", "this rank has had enough"),
        (0, "raise", "ValueError", "this rank has had enough"),
        (1, "exit", "SystemExit", ""),
        (1, "_exit", "ProcessDied", "The process of rank 1 ended with exit code 0."),
    ],
)
def test_a_rank_that_dies_ends_the_run_as_failed(
    rank: int, what: str, kind: str, message: str, watching: Train
) -> None:
    start = time.monotonic()
    answer = watching(*TWO, "name=dies", rank=rank, what=what)
    assert time.monotonic() - start < 60
    assert answer.code == 1
    run = only_run("dies")
    assert result(run)["status"] == "failed"
    error = result(run)["error"]
    assert error["type"] == kind
    assert message in error["message"]
    assert message in answer.err
    assert living() == []
    if what == "raise":
        assert message in (run / error["traceback"]).read_text()
    again = watching(*TWO, "name=dies")
    assert again.code == 0, again.err
    assert result(run)["status"] == "done"


@pytest.mark.parametrize(("first", "then"), [((), "fsdp"), (("ddp",), ""), (("fsdp",), "ddp")])
def test_a_run_goes_on_with_other_devices(first: tuple[str, ...], then: str, train: Train) -> None:
    """Steps 5 to 8 are made on other devices than the first four; the run is the same run."""

    def devices(strategy: str) -> list[str]:
        return [*TWO, f"trainer.strategy={strategy}"] if strategy else ["trainer.threads=2"]

    steps = ("trainer.max_steps=8", "trainer.checkpoint_every=4", "name=moves")
    steps += ("data.test_fraction=0.2", "trainer.keep=checkpoints")
    assert train(*steps, *devices("".join(first))).code == 0
    run = only_run("moves")
    before = rows(run)
    (run / "result.json").unlink()
    newest = newest_checkpoint(run)
    assert newest is not None and "08" in newest.name
    assert newest.is_dir() == (first == ("fsdp",))
    remove(newest)
    [older] = checkpoints_of(run)
    saved = older.stat().st_mtime_ns
    answer = train(*steps, *devices(then))
    assert answer.code == 0, answer.err
    # It went on from there, and did not write it anew.
    assert [path.stem[-1] for path in checkpoints_of(run)] == ["8", "4"]
    assert older.stat().st_mtime_ns == saved
    assert result(run)["strategy"] == (then or "single")
    assert [row["step"] for row in rows(run)] == [row["step"] for row in before]
    assert result(run)["test_loss"] == rows(run)[-1]["test/loss"]
    for row, was in zip(rows(run), before, strict=True):
        for key in set(row) - {"train/tokens_per_second"}:
            assert row[key] == pytest.approx(was[key], rel=1e-4), (row["step"], key)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_bad_number_on_one_rank_ends_the_run_on_all(strategy: str, watching: Train) -> None:
    """The last validation is made by a model that is spread already."""
    answer = watching(*TWO, f"trainer.strategy={strategy}", "name=bad", rank=1, what="nan")
    assert answer.code == 0, answer.err
    values = result(only_run("bad"))
    assert (values["status"], values["outcome"], values["steps"]) == ("done", "non-finite", 7)
    assert rows(only_run("bad"))[-1]["step"] == 7


def test_dropout_on_two_devices_drops_the_same_again(train: Train) -> None:
    arguments = (*TWO, "model.dropout=0.5")
    assert train(*arguments, "name=drop").code == 0
    assert train(*arguments, "name=again").code == 0
    assert numbers(only_run("drop"), "train/loss") == numbers(only_run("again"), "train/loss")
