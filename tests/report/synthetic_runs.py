"""A factory for synthetic sweeps: run directories with known losses, and the plan beside them."""

from __future__ import annotations

import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

Spec = dict[str, Any]


def result_of(arm: str, seed: int, loss: float | str | None, **changes: Any) -> dict[str, Any]:
    """A `result.json` as a finished run leaves it, with some keys changed."""
    ok: dict[str, Any] = {
        "status": "done",
        "outcome": "ok",
        "arm": arm,
        "seed": seed,
        "val_loss": loss,
        "val_tokens": 40960,
        "bits_per_byte": 0.5 * loss if isinstance(loss, float) else None,
        "perplexity": math.exp(loss) if isinstance(loss, float) else None,
        "steps": 1000,
        "tokens": 4096000,
        "parameters": {"total": 4213760, "non_embedding": 3165184},
        "flops_per_token": 25282560,
        "tokens_per_second": 20311.5,
        "learning_rate": 0.001,
        "config_hash": "c" * 64,
        "data_hash": "d" * 64,
        "commit": "a" * 40,
        "dirty": False,
        "error": None,
    }
    return {**ok, **changes}


def failed(arm: str, seed: int, kind: str, message: str) -> dict[str, Any]:
    """A `result.json` as a run leaves it that raised."""
    error = {"type": kind, "message": message, "traceback": "train.log"}
    return result_of(arm, seed, None, status="failed", outcome=None, error=error)


def history(loss: float, seed: int, steps: int = 1000, every: int = 25) -> list[dict[str, Any]]:
    """Validation rows of a run that falls from 8.3 to about `loss`, with some noise."""
    noise = random.Random(f"{loss} {seed}")
    rows = []
    for step in range(every, steps + 1, every):
        left = (steps - step) / steps
        falling = (8.3 - loss) * (math.exp(-step / 60) + 0.25 * left * math.exp(-step / 320))
        error = noise.gauss(0, 0.004) if step < steps else 0.0
        rows.append({"step": step, "val/loss": loss + falling + error})
    return rows


class SweepFactory:
    """Writes runs into one sweep's folder and, when asked, the plan that lists them."""

    def __init__(self, root: Path) -> None:
        """Use `root` as the sweep's folder."""
        self.root = root
        self.root.mkdir(parents=True)
        self.planned: list[dict[str, Any]] = []

    def run(
        self,
        arm: str,
        seed: int = 0,
        *,
        result: dict[str, Any] | None = None,
        metrics: list[dict[str, Any]] | None = None,
        overrides: tuple[str, ...] = (),
        exists: bool = True,
    ) -> Path:
        """Add one run to the plan and, unless it does not exist yet, write its directory."""
        digest = hashlib.sha256(f"{arm} {seed}".encode()).hexdigest()
        directory = self.root / f"{arm.replace(' ', '-')}-s{seed}-{digest[:8]}"
        self.planned.append(
            {
                "arm": arm,
                "overrides": list(overrides),
                "seed": seed,
                "directory": directory.name,
                "config_hash": digest,
            }
        )
        if exists:
            self._write(directory, arm, seed, result, metrics)
        return directory

    def _write(
        self,
        directory: Path,
        arm: str,
        seed: int,
        result: dict[str, Any] | None,
        metrics: list[dict[str, Any]] | None,
    ) -> None:
        directory.mkdir()
        (directory / "config.yaml").write_text(f"name: test\narm: {arm}\nseed: {seed}\n")
        if result is not None:
            (directory / "result.json").write_text(json.dumps(result))
        if metrics is not None:
            lines = [json.dumps(row) for row in metrics]
            (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    def done(self, arm: str, losses: dict[int, float], **changes: Any) -> None:
        """Add finished runs of one arm, one for each seed, with the losses given."""
        for seed, loss in losses.items():
            self.run(arm, seed, result=result_of(arm, seed, loss, **changes))

    def plan(self, *axes: str) -> Path:
        """Write `sweep.json` for the runs so far and return the sweep's folder."""
        content = {"name": self.root.name, "command": "x", "axes": axes, "runs": self.planned}
        (self.root / "sweep.json").write_text(json.dumps(content))
        return self.root


def grid(factory: SweepFactory, seeds: int) -> None:
    """Add the twelve arms of placement x ffn x position, one of which fails with one seed."""
    gains = {"pre": 0.0, "post": 0.09, "relu": 0.05, "swiglu": 0.0}
    positions = {"sinusoidal": 0.06, "none": 0.11, "rope": 0.0}
    for placement in ("pre", "post"):
        for ffn in ("relu", "swiglu"):
            for position, extra in positions.items():
                arm = f"{placement} {ffn} {position}"
                given = (f"placement={placement}", f"ffn={ffn}", f"position={position}")
                for seed in range(seeds):
                    noise = random.Random(f"{arm}{seed}").gauss(0, 0.02)
                    loss = 3.2 + gains[placement] + gains[ffn] + extra + noise
                    result, rows = result_of(arm, seed, loss), history(loss, seed)
                    factory.run(arm, seed, result=result, metrics=rows, overrides=given)
