"""What the subjects beyond the step count, on sizes so small that only their working is seen."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from lm_experiments.benchmark import checkpoint, compilation, evaluation, growth, head, planning
from lm_experiments.benchmark.lightning_run import run_config
from lm_experiments.benchmark.rounds import Measurement, Timing, table
from lm_experiments.benchmark.worker import worker
from lm_experiments.errors import InputError
from lm_experiments.model import ModelConfig, loss
from lm_experiments.registry import choose
from lm_experiments.training.config import BatchConfig, TrainerConfig

TINY = ModelConfig(d_model=16, n_layers=1, n_heads=2, context_length=8, vocab_size=32, d_ff=64)


@pytest.fixture(autouse=True)
def memory_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the allocator of the tests' process alone."""
    for module in (head, growth, evaluation, compilation):
        monkeypatch.setattr(module, "keep_freed_memory", lambda: None)


def test_columns_are_those_that_were_measured() -> None:
    timings = [
        Timing("a", 1.0, 1.0, 1.0, 1.0, theory=1.0, peak_bytes=2_000_000),
        Timing("longer", 2.0, 2.0, 2.0, 2.0, theory=1.5, peak_bytes=3_000_000),
    ]
    lines = table(Measurement("T.", timings, 1, reference="the first")).splitlines()
    assert lines[2].split() == [
        "seconds",
        "time",
        "theory",
        "MB",
        *["10th", "to", "90th", "percentile"],
    ]
    assert lines[4].split() == ["longer", "2.000", "2.000", "1.500", "3", "2.000", "to", "2.000"]
    assert "relative to the first, the median" in lines[6]


@pytest.mark.parametrize("chunk", [None, 3, 64])
def test_the_head_that_is_timed_is_the_loss(
    chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "chunk_length", loss.chunk_length)
    seen: list[int] = []
    product = torch.mm

    def counted(*arguments: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        seen.append(len(out))
        return product(*arguments, out=out)

    monkeypatch.setattr(loss.torch, "mm", counted)
    head.head_loss(vocabulary=11, tokens=8, chunk=chunk)()
    assert seen == {None: [8], 3: [3, 3, 2], 64: [8]}[chunk]


def test_growth_is_relative_to_the_first_point_of_an_axis(tmp_path: Path) -> None:
    points = [
        Timing(f"context {n:,}", s, 1.0, 1.0, 1.0, peak_bytes=n)
        for n, s in ((512, 2.0), (1024, 3.0))
    ]
    first, second = growth._relative(points, [10, 12])
    assert (first.ratio, first.theory, second.ratio, second.theory) == (1.0, 1.0, 1.5, 1.2)
    growth.draw({"context": [first, second]}, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_what_takes_too_long_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        growth, "_point", lambda axis, value, rounds: Timing(f"{axis.name} {value}", 1.0, 1, 1, 1)
    )
    axes = [growth.Axis("context", (512, 1 << 20)), growth.Axis("width", (128,))]
    report = growth.compare(axes, 1, 1e12, tmp_path / "growth.png")
    assert [timing.name for timing in report.timings] == ["context 512", "width 128"]
    assert "left out, as a step takes too long here: context 1,048,576" in report.notes


def test_checkpoints_are_saved_verified_and_loaded() -> None:
    names = [timing.name.split(": ")[1] for timing in checkpoint.compare((TINY,), 1).timings]
    assert names == ["save", "verify", "load"]


def test_the_share_of_validation_follows_from_its_passes(tmp_path: Path) -> None:
    trainer = TrainerConfig(max_steps=100, val_every=30)
    # 4 passes of 2 s, and 100 steps of which ten take 1 s.
    assert evaluation._share(trainer, 1.0, 2.0).endswith("are 44 % of the run's time.")
    text = tmp_path / "text.txt"
    text.write_text("In the beginning was the word. " * 60, encoding="utf-8")
    config = dataclasses.replace(
        run_config(dataclasses.replace(trainer, accelerator="cpu"), tmp_path / "cache"),
        model=dataclasses.replace(TINY, vocab_size=257),
        data=BatchConfig(name="text", path=str(text), batch_size=2),
        tokenizer=choose("tokenizer", "bytes"),
    )
    assert [t.name for t in evaluation.compare(config, 1).timings] == [
        evaluation.STEP,
        evaluation.PASS,
    ]


def test_compiling_that_saves_nothing_is_never_paid_back() -> None:
    assert compilation._verdict(30.0, 0.1) == "Compiling took 30.0 s, which 300 steps pay back."
    assert "no number of steps" in compilation._verdict(30.0, -0.1)


@pytest.mark.slow
def test_work_in_a_process_of_its_own_tells_its_memory() -> None:
    with worker(head.head_loss, vocabulary=32_768, tokens=1024, chunk=1024) as one:
        assert one.wall() > 0 and one.work() > 0
        # The logits, float32.
        assert one.peak_bytes > 32_768 * 1024 * 4
        one.process.kill()
        with pytest.raises(InputError, match="too little memory"):
            one.wall()


@pytest.mark.slow
def test_plans_of_sweeps_are_timed() -> None:
    report = planning.compare(((1, 1), (2, 1)), 1)
    assert [timing.name for timing in report.timings] == ["1 x 1 runs", "2 x 1 runs"]
    assert all((timing.peak_bytes or 0) > 1 << 26 for timing in report.timings)


@pytest.mark.slow
def test_compiled_steps_are_timed_beside_eager_ones() -> None:
    report = compilation.compare(TINY, 2, 1)
    assert "Compiling took" in report.notes[0]
