"""Checkpoints of compiled and of plain models are the same files."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lm_experiments.launch.local import train
from lm_experiments.launch.task import Task
from lm_experiments.model import Choice, ModelConfig
from lm_experiments.registry import choose
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.training.checkpoints import load_model, newest_checkpoint
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig, save_config
from lm_experiments.training.logger_config import NoLogger
from lm_experiments.training.optimizers import AdamW
from lm_experiments.training.schedules import Constant

IDENTITY = Identity("c" * 64, "d" * 64)
# Kernels that a compiler fused add up in another order: float32, some steps, a loss of some nats.
TOLERANCE = 1e-4

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the compiler's cache, which the runs' processes share."""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "kernels"))
        yield folder


@pytest.fixture(scope="module")
def config(text_file: Path, cache_dir: Path) -> RunConfig:
    return RunConfig(
        model=ModelConfig(16, 1, 2, 16, vocab_size=257, ffn=Choice("relu"), d_ff=32),
        data=BatchConfig(name="text", path=str(text_file)),
        tokenizer=choose("tokenizer", "bytes"),
        optimizer=AdamW(),
        schedule=Constant(),
        trainer=TrainerConfig(
            6, accelerator="cpu", threads=1, val_every=6, log_every=1, checkpoint_every=4
        ),
        logger=NoLogger(),
        cache_dir=str(cache_dir),
    )


@pytest.fixture(scope="module")
def runs(folder: Path, config: RunConfig) -> dict[bool, Path]:
    """Two runs, by whether they were compiled."""
    found = {}
    for compiled in (False, True):
        found[compiled] = folder / f"compiled-{compiled}"
        found[compiled].mkdir()
        save_config(dataclasses.replace(config, compile=compiled), found[compiled])
        write_identity(found[compiled], IDENTITY)
        assert train(Task(found[compiled])).status == "done"
    return found


def result(run: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((run / "result.json").read_text())
    return values


def saved(run: Path) -> dict[str, Any]:
    path = newest_checkpoint(run)
    assert path is not None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def strings(value: Any) -> Iterator[str]:
    """Yield every key of nested values."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from strings(item)


def test_a_compiled_run_saves_the_names_of_a_plain_one(runs: dict[bool, Path]) -> None:
    plain, compiled = saved(runs[False]), saved(runs[True])
    assert list(plain["state_dict"]) == list(compiled["state_dict"])
    assert not [key for key in strings(compiled) if "_orig_mod" in key or "module." in key]
    assert sorted(strings(plain)) == sorted(strings(compiled))
    assert [*runs[True].parent.glob("kernels/**/*.so")], "nothing was compiled"


@pytest.mark.parametrize("trained_compiled", [False, True])
@torch.no_grad()
def test_a_checkpoint_evaluates_alike_compiled_and_plain(
    trained_compiled: bool, runs: dict[bool, Path], config: RunConfig
) -> None:
    tokens = torch.randint(0, 257, (4, 17), generator=torch.Generator().manual_seed(0))
    losses = []
    for compiled in (False, True):
        model = load_model(runs[trained_compiled], config)
        if compiled:
            model.compile()
        losses.append(model.loss(tokens[:, :-1], tokens[:, 1:]).item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


@pytest.mark.parametrize("began_compiled", [False, True])
def test_a_run_goes_on_in_the_other_way(
    began_compiled: bool, runs: dict[bool, Path], config: RunConfig, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[began_compiled], run)
    (run / "result.json").unlink()
    (run / "checkpoints" / "step-00000006.ckpt").unlink()
    save_config(dataclasses.replace(config, compile=not began_compiled), run)
    assert train(Task(run)).status == "done"
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").open()]
    assert steps == [1, 2, 3, 4, 5, 6, 6]
    losses = [result(path)["val_loss"] for path in (run, *runs.values())]
    assert losses == pytest.approx([losses[0]] * 3, abs=TOLERANCE)
    assert losses[0] < result(run)["initial_loss"]
