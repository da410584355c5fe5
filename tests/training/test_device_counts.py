"""How many devices a run may have, and what each of its processes gets of the machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from lm_experiments.errors import InputError
from lm_experiments.launch.memory import run_bytes
from lm_experiments.model import ModelConfig
from lm_experiments.registry import choose
from lm_experiments.study.checks import warnings
from lm_experiments.training import devices
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig
from lm_experiments.training.devices import (
    MICRO_BATCH_BYTES,
    best_micro_batch,
    find_device,
    kept_bytes,
    prepare_process,
)
from lm_experiments.training.logger_config import WandbConfig
from lm_experiments.training.optimizers import AdamW, Muon
from lm_experiments.training.result import run_error
from lm_experiments.training.schedules import Constant


def run_config(batch_size: int = 16, **trainer: Any) -> RunConfig:
    return RunConfig(
        model=ModelConfig(context_length=64),
        data=BatchConfig(batch_size=batch_size),
        tokenizer=choose("tokenizer", "bytes"),
        optimizer=AdamW(),
        schedule=Constant(warmup_steps=0),
        trainer=TrainerConfig(**trainer),
        logger=WandbConfig(),
    )


@pytest.fixture
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("kind", "asked", "allowed"), [("cuda", 3, 2), ("mps", 2, 1)], ids=["cuda", "mps"]
)
def test_more_devices_than_there_are(
    kind: str, asked: int, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_present", lambda: {kind: True, "cpu": True})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    config = run_config(batch_size=12, devices=asked, precision="32-true")
    with pytest.raises(InputError, match=f"devices={asked} .*; type trainer.devices={allowed} "):
        find_device(config)
    fits = dataclasses.replace(config.trainer, devices=allowed)
    assert find_device(dataclasses.replace(config, trainer=fits)).type == kind


def test_an_optimizer_that_needs_whole_matrices() -> None:
    sharded = run_config(devices=2, strategy="fsdp")
    expected = r"optimizer=muon needs whole; .*strategy=ddp.*=adamw, optimizer=lion, optimizer=sgd"
    with pytest.raises(InputError, match=expected):
        dataclasses.replace(sharded, optimizer=Muon())


def test_micro_batches_are_of_the_share_of_a_device() -> None:
    whole = run_config(accelerator="cpu", micro_batch_size=12)
    assert find_device(whole).micro_batch_size == 12
    shared = run_config(accelerator="cpu", micro_batch_size=12, devices=2)
    assert find_device(shared).micro_batch_size == 8


@pytest.mark.parametrize(
    ("length", "batch", "size"),
    [
        pytest.param(128, 16, 16, id="small enough to stay whole"),
        pytest.param(1024, 16, 6, id="three parts, the last one the smaller"),
        pytest.param(1024, 14, 5, id="equal parts rather than 6, 6 and 2"),
        pytest.param(1 << 20, 4, 1, id="never less than a sequence"),
    ],
)
def test_a_micro_batch_is_as_large_as_its_activations_allow(
    length: int, batch: int, size: int
) -> None:
    model = ModelConfig(context_length=length)
    assert best_micro_batch(model, batch, "cpu", "32-true") == size
    if size > 1:
        assert size * length * kept_bytes(model, "32-true") <= MICRO_BATCH_BYTES["cpu"]


def test_the_memory_of_a_run_knows_that_blocks_are_computed_again() -> None:
    kept, again = (
        run_bytes(run_config(accelerator="cpu", activation_checkpointing=on))
        for on in (False, True)
    )
    config = run_config(accelerator="cpu")
    tokens, layers = 16 * 64, config.model.n_layers
    saved = kept_bytes(config.model, "32-true") * (1 - 1 / layers)
    assert kept - again == tokens * (saved - 4 * layers * config.model.d_model)


@pytest.mark.usefixtures("threads_as_before")
@pytest.mark.parametrize(("threads", "count", "each"), [(6, 2, 3), (1, 2, 1), (3, 1, 3)])
def test_threads_are_shared_by_the_processes(threads: int, count: int, each: int) -> None:
    config = run_config(accelerator="cpu", threads=threads, devices=count)
    prepare_process(config, find_device(config))
    assert torch.get_num_threads() == each


def test_more_processes_than_cores_are_warned_about() -> None:
    def said(count: int) -> list[str]:
        config = run_config(batch_size=4096, accelerator="cpu", devices=count)
        return [text for text in warnings(config) if "cores" in text]

    assert said(1) == []
    assert len(said(4096)) == 1


@pytest.mark.parametrize(
    ("steps", "size", "gains"),
    [(100, {}, False), (100_000, {}, True), (1000, {"d_model": 2048, "d_ff": 8192}, True)],
    ids=["a short run", "a long one", "a large model"],
)
def test_compiling_is_chosen_where_training_outlasts_it(
    steps: int, size: dict[str, int], gains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_present", lambda: {"cuda": True, "cpu": True})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: name == "triton")
    config = run_config(batch_size=512, max_steps=steps, precision="32-true")
    config = dataclasses.replace(config, model=ModelConfig(context_length=1024, **size))
    assert find_device(config).compile is gains
    assert not find_device(dataclasses.replace(config, compile=False)).compile
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: None)
    assert not find_device(config).compile


@pytest.mark.parametrize("asked", [True, False])
def test_deterministic_algorithms_are_used_where_asked_for(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    config = run_config(accelerator="cpu", deterministic=asked)
    try:
        prepare_process(config, find_device(config))
        assert torch.are_deterministic_algorithms_enabled() is asked
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_compiler_that_fails_says_what_to_type() -> None:
    failed = BackendCompilerFailed(max, ValueError("no compiler"), None)
    assert "type compile=false, for all runs" in run_error(failed).message
    assert "compile=false" not in run_error(ValueError("other")).message
