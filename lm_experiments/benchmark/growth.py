"""How the time and memory of a step grow with context, depth, width and vocabulary."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lm_experiments.benchmark.rounds import Measurement, Timing, device, measure
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.benchmark.worker import Work, worker
from lm_experiments.model import ModelConfig, build_model, count
from lm_experiments.training.allocation import keep_freed_memory

BASE: dict[str, int] = {
    "d_model": 128,
    "n_layers": 2,
    "n_heads": 2,
    "d_ff": 512,
    "context_length": 512,
    "vocab_size": 4096,
}
# The least tokens of a step: longer contexts are one sequence.
TOKENS = 1024
# What a step may cost at most, in FLOPs, so that a round takes seconds.
MOST_FLOPS = {"cpu": 4e11, "cuda": 1e14}
CHART = Path("growth.png")


@dataclass(frozen=True)
class Axis:
    """What grows: a name, its values, and the sizes of a model that follow from a value."""

    name: str
    values: tuple[int, ...]

    def shape(self, value: int) -> dict[str, int]:
        """Return the sizes of the model at a value."""
        if self.name != "width":
            return {**BASE, _KEYS[self.name]: value}
        return {**BASE, "d_model": value, "d_ff": 4 * value, "n_heads": value // 64}


_KEYS = {"context": "context_length", "depth": "n_layers", "vocabulary": "vocab_size"}
AXES = (
    Axis("context", (512, 1024, 2048, 4096, 8192, 16_384, 32_768)),
    Axis("depth", (2, 4, 8, 16)),
    Axis("width", (128, 256, 512, 1024)),
    Axis("vocabulary", (4096, 16_384, 32_768, 131_072)),
)


def growth(rounds: int) -> Measurement:
    """Time a step along each axis, each in a process of its own, and draw ``growth.png``.

    Theory is the FLOPs of a token, the full square of attention included, relative to the first.
    """
    return compare(AXES, rounds, MOST_FLOPS[device().type], CHART)


def compare(axes: Iterable[Axis], rounds: int, most_flops: float, chart: Path) -> Measurement:
    """Time the points of the axes that cost at most so many FLOPs a step; see `growth`."""
    timings: dict[str, list[Timing]] = {}
    skipped = []
    for axis in axes:
        affordable = [value for value in axis.values if _flops(axis.shape(value)) <= most_flops]
        skipped += [f"{axis.name} {v:,}" for v in axis.values if v not in affordable]
        timings[axis.name] = _relative(
            [_point(axis, value, rounds) for value in affordable],
            [count(ModelConfig(**axis.shape(v))).training_flops_per_token for v in affordable],  # type: ignore[arg-type]
        )
    timings = {name: points for name, points in timings.items() if points}
    draw(timings, chart)
    notes = [f"time and theory are per token; the chart is {chart}"]
    if skipped:
        notes.append(f"left out, as a step takes too long here: {', '.join(skipped)}")
    title = "Seconds per 1,000 tokens of a training step, and its memory."
    rows = [timing for found in timings.values() for timing in found]
    return Measurement(title, rows, rounds, 1000, notes, "the first of its axis")


def sized_step(shape: dict[str, int]) -> Work:
    """Return a training step of a model of these sizes."""
    keep_freed_memory()
    config, place = ModelConfig(**shape), device()  # type: ignore[arg-type]
    model = build_model(config, seed=0).to(place)
    size = (_sequences(shape), config.context_length)
    tokens = torch.randint(config.vocab_size, size, generator=torch.Generator().manual_seed(0))
    tokens = tokens.to(place)
    step = PlainStep(model, model.loss, len(tokens))
    return lambda: step(tokens, tokens)


def _point(axis: Axis, value: int, rounds: int) -> Timing:
    shape = axis.shape(value)
    tokens = _sequences(shape) * shape["context_length"]
    name = f"{axis.name} {value:,}"
    with worker(sized_step, shape=shape) as one:
        [timing] = measure({name: lambda: one.wall() * 1000 / tokens}, rounds)
        return dataclasses.replace(timing, peak_bytes=one.peak_bytes)


def _relative(points: list[Timing], flops: list[int]) -> list[Timing]:
    """Return the points with ratios and theory relative to the first."""
    first = points[0].seconds if points else 1.0
    return [
        dataclasses.replace(
            point,
            ratio=point.seconds / first,
            low=point.low * point.seconds / first,
            high=point.high * point.seconds / first,
            theory=cost / flops[0],
        )
        for point, cost in zip(points, flops, strict=True)
    ]


def draw(timings: dict[str, list[Timing]], path: Path) -> None:
    """Draw time, theory and memory along each axis, relative to its first point, as a PNG."""
    from lm_experiments.report.pictures.figure import picture, plain_frame

    with picture(path, (3.6 * len(timings), 3.6)) as figure:
        figure.set_layout_engine("constrained")
        for place, (name, points) in zip(
            figure.subplots(1, len(timings), squeeze=False)[0], timings.items(), strict=True
        ):
            x = [float(point.name.split()[-1].replace(",", "")) for point in points]
            for label, values, style in _lines(points):
                place.plot(x, values, style, label=label)
            place.set(xscale="log", yscale="log", xlabel=name, ylabel="relative to the first")
            for side in (place.xaxis, place.yaxis):
                side.set_minor_formatter("")
                side.set_major_formatter("{x:g}")
            place.set_xticks(x, [point.name.split()[-1] for point in points], rotation=60)
            plain_frame(place, "y")
            place.legend(frameon=False)


def _lines(points: list[Timing]) -> list[tuple[str, list[Any], str]]:
    base = points[0].peak_bytes or 1
    memory = [(point.peak_bytes or 0) / base for point in points]
    return [
        ("time per token", [point.ratio for point in points], "o-"),
        ("theory", [point.theory for point in points], "--"),
        ("memory", memory, "s:"),
    ]


def _sequences(shape: dict[str, int]) -> int:
    return max(1, TOKENS // shape["context_length"])


def _flops(shape: dict[str, int]) -> float:
    per_token = count(ModelConfig(**shape)).training_flops_per_token  # type: ignore[arg-type]
    return per_token * _sequences(shape) * shape["context_length"]
