"""Checkpoints: seconds to save, to verify and to load them, by the size of the model."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from lm_experiments.benchmark.rounds import Measurement, Timing, measure, timed
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.training.checkpoints import is_whole, write_whole

SHAPES = (
    ModelConfig(),
    ModelConfig(d_model=320, n_layers=6, n_heads=5, d_ff=1280),
    ModelConfig(d_model=512, n_layers=8, n_heads=8, d_ff=2048, vocab_size=16_384),
)


def checkpoint(rounds: int) -> Measurement:
    """Time saving, verifying and loading checkpoints with optimizer state, at three sizes."""
    return compare(SHAPES, rounds)


def compare(shapes: tuple[ModelConfig, ...], rounds: int) -> Measurement:
    """Time the three for each shape; see `checkpoint`."""
    timings = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in shapes:
            timings += _timings(shape, Path(folder) / "step-00000001.ckpt", rounds)
    title = "Checkpoints with optimizer state; ratios are those of the seconds to save."
    return Measurement(title, timings, rounds, reference="saving the model of the same size")


def _timings(shape: ModelConfig, path: Path, rounds: int) -> list[Timing]:
    model = build_model(shape, seed=0)
    step = PlainStep(model, model.loss, 1)
    token = torch.zeros((1, 1), dtype=torch.int64)
    step(token, token)
    state = step.checkpoint()
    write_whole(state, path)
    million = sum(p.numel() for p in model.parameters()) / 1e6
    name = f"{million:.1f} M parameters, {path.stat().st_size / 1e6:,.0f} MB"
    contestants = {
        f"{name}: save": timed(lambda: write_whole(state, path)),
        f"{name}: verify": timed(lambda: is_whole(path)),
        f"{name}: load": timed(lambda: torch.load(path, weights_only=True)),
    }
    return measure(contestants, rounds)
