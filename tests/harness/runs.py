"""What a run directory holds, and whether two hold the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

# The values of a run's configuration that its checks need, small.
CHOICES: dict[str, Any] = {
    "model": {"d_model": 32, "n_heads": 2},
    "data": {"name": "kjv"},
    "tokenizer": {"name": "bytes"},
    "optimizer": {"name": "adamw", "lr": 1e-3},
    "schedule": {"name": "cosine"},
    "trainer": {"max_steps": 10},
    "logger": {"name": "none"},
}
TIMING = ("seconds", "wall_seconds", "cpu_seconds", "tokens_per_second", "peak_memory_bytes")


def rows(run: Path) -> list[dict[str, Any]]:
    """Return the rows of ``metrics.jsonl``, without the measured speed."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(x).items() if "per_second" not in k} for x in lines]


def result(run: Path) -> dict[str, Any]:
    """Return ``result.json``."""
    values: dict[str, Any] = json.loads((run / "result.json").read_text())
    return values


def lasting(run: Path) -> dict[str, Any]:
    """Return ``result.json`` without measured times."""
    return {key: value for key, value in result(run).items() if key not in TIMING}


def state(run: Path) -> dict[str, Any]:
    """Return weights, optimizer state and step of the newest checkpoint."""
    saved = torch.load(max((run / "checkpoints").glob("*.ckpt")), weights_only=True)
    return {key: saved[key] for key in ("state_dict", "optimizer_states", "global_step")}


def assert_same(run: Path, other: Path, saved: bool = True) -> None:
    """Compare two runs bit for bit in everything but measured times.

    ``saved`` is whether they also saved at the same steps, as runs do that got no signal.
    """
    assert rows(run) == rows(other)
    keys = [(row["step"], frozenset(row)) for row in rows(run)]
    assert len(keys) == len(set(keys)), "a step is logged twice"
    assert _equal(state(run), state(other)), "the final weights or optimizer states differ"
    assert lasting(run) == lasting(other)
    assert _bytes(run / "documents.npz") == _bytes(other / "documents.npz")
    if saved:
        assert _names(run / "checkpoints") == _names(other / "checkpoints")


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
