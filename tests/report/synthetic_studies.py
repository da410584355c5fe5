"""A factory for synthetic studies: arms with known effects, seeds, tuning trials and controls."""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthetic_runs import history, result_of

ARMS: dict[str, list[str]] = {
    "baseline": [],
    "no norm": ["norm=none"],
    "nope": ["position=none"],
    "silu": ["ffn=silu"],
    "layernorm": ["norm=layernorm"],
}
EFFECTS = {"no norm": 0.22, "nope": 0.075, "silu": 0.012, "layernorm": 0.001}
BEST_RATE = {"no norm": 1e-3, "nope": 1e-2, "baseline": 3e-3}
GRID = (1e-3, 3e-3, 1e-2)
KEY = "optimizer.lr"


@dataclass
class StudyFactory:
    """Writes a study's runs; `losses` and `broken` overrule what an arm's effect would give."""

    root: Path
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    arms: dict[str, list[str]] = field(default_factory=lambda: dict(ARMS))
    controls: tuple[str, ...] = ()
    contrasts: list[list[str]] | None = None
    margin: float | None = 0.01
    tuned: bool = False
    curves: bool = False
    losses: dict[tuple[str, int], float] = field(default_factory=dict)
    broken: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    changes: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, Any] = field(default_factory=dict)

    def loss(self, arm: str, seed: int, rate: float | None = None) -> float:
        """An arm's loss: its effect, the seed's, its own noise, and how far the rate is off."""
        if (arm, seed) in self.losses:
            return self.losses[arm, seed]
        shared = random.Random(f"seed {seed}").gauss(0, 0.012)
        own = 0.0 if arm in self.controls else random.Random(f"{arm} {seed}").gauss(0, 0.004)
        effect = EFFECTS.get(arm, 0.0)
        best = BEST_RATE.get(arm, 3e-3)
        off = 0.06 * math.log(rate / best) ** 2 if rate else 0.0
        return 3.2 + effect + shared + own * (arm != "baseline") + off

    def add(
        self, arm: str, seed: int, role: str, rate: float | None = None, exists: bool = True
    ) -> Path:
        """Plan one run and, unless it does not exist yet, write it."""
        at = f"-lr{rate:g}" if rate else ""
        digest = hashlib.sha256(f"{arm} {seed} {rate}".encode()).hexdigest()
        name = f"{arm.replace(' ', '-').replace('/', '-')}{at}-s{seed}-{digest[:8]}"
        self.entries.append(
            {
                "arm": arm,
                "overrides": self.arms[arm],
                "seed": seed,
                "directory": name,
                "config_hash": digest,
                "role": role,
                "setting": {KEY: rate} if rate else {},
            }
        )
        directory = self.root / name
        if exists and not directory.exists():
            self._write(directory, arm, seed, rate)
        return directory

    def _write(self, directory: Path, arm: str, seed: int, rate: float | None) -> None:
        directory.mkdir(parents=True)
        loss = self.loss(arm, seed, rate)
        known = {"eval_context": 128, "tokenizer_hash": "f" * 64, "device": "cpu", "threads": 1}
        known |= self.changes.get((arm, seed), {})
        changes = {"learning_rate": rate or 3e-3, **known, **self.broken.get((arm, seed), {})}
        (directory / "result.json").write_text(json.dumps(result_of(arm, seed, loss, **changes)))
        if self.curves:
            lines = [json.dumps(row) for row in history(loss, seed)]
            (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    def report(self) -> None:
        """Add every arm's runs with every seed, at the baseline's setting."""
        for arm in self.arms:
            for seed in self.seeds:
                self.add(arm, seed, "report", 3e-3 if self.tuned else None)

    def tune(self, seed: int = 100) -> None:
        """Add a trial of every value for every arm that is not a control, and choose."""
        for arm in self.arms:
            if arm in self.controls:
                continue
            for rate in GRID:
                self.add(arm, seed, "tune", rate)
            best = min(GRID, key=lambda rate: self.loss(arm, seed, rate))
            self.chosen[arm] = {"value": best, "edge": best in (GRID[0], GRID[-1])}

    def tuned_runs(self) -> None:
        """Add every tuned arm's runs at its own best value."""
        for arm, choice in self.chosen.items():
            for seed in self.seeds:
                self.add(arm, seed, "tuned", choice["value"])

    def block(self) -> dict[str, Any]:
        """The `study` block of `sweep.json`."""
        others = [arm for arm in self.arms if arm != "baseline"]
        pairs = [[arm, "baseline"] for arm in others]
        tune = {"key": KEY, "grid": GRID, "seeds": [100], "trials": len(GRID), "limit": 2}
        return {
            "name": self.root.name,
            "baseline": "baseline",
            "arms": self.arms,
            "controls": list(self.controls),
            "seeds": list(self.seeds),
            "contrasts": pairs if self.contrasts is None else self.contrasts,
            "margin": self.margin,
            "primary": "val_loss",
            "match": "params",
            "match_tolerance": 0.01,
            "tune": ({**tune, "chosen": self.chosen} if self.chosen else tune)
            if self.tuned
            else None,
        }

    def plan(self) -> Path:
        """Write `sweep.json` and return the study's folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        content = {
            "name": self.root.name,
            "command": f"python scripts/train.py -m study={self.root.name}",
            "axes": [],
            "runs": self.entries,
            "study": self.block(),
        }
        (self.root / "sweep.json").write_text(json.dumps(content))
        return self.root

    def whole(self) -> Path:
        """A finished study: reports, and trials and tuned runs where it is tuned."""
        self.report()
        if self.tuned:
            self.tune()
            self.tuned_runs()
        return self.plan()
