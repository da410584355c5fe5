"""Diagnostics: what is measured is what is said, and training does not notice."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from model.small_models import tiny_batch, tiny_config, tiny_model
from torch import Tensor

from lm_experiments.data import TrainingBatches
from lm_experiments.errors import InputError
from lm_experiments.model import build_model, choose
from lm_experiments.model.attention import CausalAttention
from lm_experiments.model.attention_kernels import AttentionContext, attend
from lm_experiments.rundir.diagnostics import (
    ENTROPY,
    GRADIENT,
    LARGEST,
    LOG_Z,
    SCORE,
    STATISTICS,
    STREAM,
    UPDATE,
    by_part,
    read_diagnostics,
)
from lm_experiments.study.open_run import open_run
from lm_experiments.training import layer_statistics
from lm_experiments.training.checkpoints import load_model
from lm_experiments.training.layer_statistics import attention_scores, look_inside, parts_of, read
from lm_experiments.training.watch_config import DiagnosticsConfig

WINDOWS = {"window": 5}


def state_of(run: Path) -> dict[str, Tensor]:
    opened = open_run(run)
    return load_model(run, opened.config).state_dict()


def test_rows_hold_what_their_names_say(run_of: Callable[..., Path]) -> None:
    run = run_of("trainer.max_steps=1", "optimizer.clip_norm=0.01", "diagnostics.every=1")
    [row] = read_diagnostics(run)
    assert json.loads((run / "result.json").read_text())["loss_spikes"] == 0
    opened = open_run(run)
    config = opened.config
    model, trained = build_model(config.model, config.seed), opened.model()
    batches = TrainingBatches(
        opened.data.train.tokens, config.model.context_length, config.data.batch_size, config.seed
    )
    inputs, targets = batches.batch(0)
    (model.loss(inputs, targets) / targets.numel()).backward()  # type: ignore[no-untyped-call]
    for part, own in parts_of(model).items():
        gradient = torch.cat([p.grad.flatten() for p in own if p.grad is not None]).norm()
        assert row[f"{GRADIENT}/{part}"] == pytest.approx(gradient.item(), rel=1e-4)
        weights = torch.cat([p.detach().flatten() for p in own])
        now = torch.cat([p.detach().flatten() for p in parts_of(trained)[part]])
        ratio = ((now - weights).norm() / weights.norm()).item()
        assert row[f"{UPDATE}/{part}"] == pytest.approx(ratio, rel=1e-4)
    with torch.no_grad():
        hidden = trained.hidden(inputs[:2])
        log_z = trained.logits(hidden).logsumexp(-1).mean()
    assert row[LOG_Z] == pytest.approx(log_z.item(), rel=1e-4)
    assert list(by_part(row, GRADIENT)) == ["embedding", "0", "head"]
    assert list(by_part(row, STREAM)) == list(by_part(row, LARGEST)) == ["embedding", "0"]
    assert list(by_part(row, SCORE)) == list(by_part(row, ENTROPY)) == ["0"]
    assert {key.partition("/")[0] for key in row} == {"step", *STATISTICS}


def test_the_stream_is_measured_after_each_block() -> None:
    model = tiny_model(placement="post")
    inputs, _ = tiny_batch(2)
    found = read(look_inside(model, inputs))
    # What leaves a block of the post placement has been normalised last.
    assert found[f"{STREAM}/0"] == pytest.approx(1, abs=0.01)
    embedded = model.embedding(inputs)
    assert found[f"{LARGEST}/embedding"] == pytest.approx(embedded.abs().max().item(), rel=1e-4)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("positions", [4, 64])
@pytest.mark.parametrize(
    ("options", "position", "documents"),
    [
        *itertools.product(
            [{}, {"kv_heads": 1}, WINDOWS, {"softcap": 2.0, "scale": 3.0}, {"qk_norm": "l2"}],
            ["rope"],
            [False, True],
        ),
        ({}, "alibi", False),
        ({}, "hard_alibi", True),
        ({}, "t5", True),
    ],
)
def test_scores_are_those_that_attention_is_made_of(
    options: dict[str, Any],
    position: str,
    documents: bool,
    positions: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their softmax times the values is what the kernels compute, at those queries."""
    monkeypatch.setattr(layer_statistics, "POSITIONS", positions)
    attention = choose("attention", "causal", options)
    model = build_model(replace(tiny_config(position=position), attention=attention), seed=0)
    ids = torch.arange(16).expand(2, 16) // 6 if documents else None
    seen: list[tuple[CausalAttention, Tensor, AttentionContext]] = []
    for block in model.blocks:
        block.attention.register_forward_pre_hook(lambda m, args: seen.append((m, *args[:2])))
    model.hidden(tiny_batch(2)[0], documents=ids)
    for layer, x, context in seen:
        scores = attention_scores(layer, x, context)
        at = layer_statistics.spread(16, x.device)
        assert scores.shape == (2, 2, min(positions, 16), 16) and 15 in at
        value = layer._heads(layer.value(x), None)
        query, key = (
            context.position.rotate(layer._heads(project(x), norm), context.phases)
            for project, norm in ((layer.query, layer.query_norm), (layer.key, layer.key_norm))
        )
        mixed = attend(query, key, value, context, layer.scale)
        groups = value.repeat_interleave(2 // value.shape[1], dim=1)
        torch.testing.assert_close(
            scores.softmax(-1) @ groups, mixed[:, :, at], atol=1e-5, rtol=1e-4
        )


def test_entropy_and_largest_score_of_attention_that_is_known() -> None:
    model = tiny_model(position="none")
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.query.weight)
    found = read(look_inside(model, tiny_batch(2)[0]))
    # Query i attends alike to i + 1 keys.
    mean = sum(torch.log(torch.tensor(float(i + 1))).item() for i in range(16)) / 16
    assert found[f"{ENTROPY}/1"] == pytest.approx(mean, rel=1e-4)
    assert found[f"{SCORE}/1"] == 0


@pytest.mark.slow
def test_a_compiled_model_trains_the_same_and_is_not_compiled_again(
    run_of: Callable[..., Path],
) -> None:
    words = ["compile=true", "trainer.max_steps=4"]
    before = state_of(run_of("name=without", *words))
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    run = run_of("name=with", "diagnostics.every=2", *words)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2 * compiled
    after = state_of(run)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert [row["step"] for row in read_diagnostics(run)] == [1, 2, 4]


@pytest.mark.parametrize("every", [7, 0, -2, "often"])
def test_steps_that_are_not_logged_are_refused(every: int | str) -> None:
    with pytest.raises(InputError, match=f"diagnostics.every={every} is not at logged steps"):
        DiagnosticsConfig(every).steps(10, "single")
    assert DiagnosticsConfig("auto").steps(10, "single") == 10


def test_shards_are_refused(refused: Callable[..., str]) -> None:
    words = ["trainer.devices=2", "trainer.strategy=fsdp", "diagnostics.every=auto"]
    assert "trainer.strategy=fsdp cuts into shards" in refused("train", *words, "logger=none")
