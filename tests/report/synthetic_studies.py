"""A factory for synthetic studies: arms with known effects, seeds, tuning trials and controls."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from synthetic_runs import history, result_of, write_run

from lm_experiments.rundir.ladder import Ladder
from lm_experiments.rundir.ledger import record_command
from lm_experiments.rundir.published import Claim
from lm_experiments.rundir.study import REPORT, TUNE, TUNED, Chosen, Study, Tuning
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, write_sweep

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
# What results of studies say beyond those of sweeps.
KNOWN = {
    "eval_context": 128,
    "tokenizer_hash": "f" * 64,
    "device": "cpu",
    "threads": 1,
    "match": "params",
    "match_tolerance": 0.01,
}


@dataclass
class StudyFactory:
    """Writes a study's runs; `losses`, `trials` and `broken` overrule what an effect would give."""

    root: Path
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    arms: dict[str, list[str]] = field(default_factory=lambda: dict(ARMS))
    controls: tuple[str, ...] = ()
    contrasts: list[list[str]] | None = None
    baseline: str = "baseline"
    ladder: Ladder | None = None
    margin: float | None = 0.012
    primary: str = "val_loss"
    published: list[Claim] = field(default_factory=list)
    tuned: bool = False
    curves: bool = False
    tuning_seeds: tuple[int, ...] = (100,)
    losses: dict[tuple[str, int], float] = field(default_factory=dict)
    trials: dict[tuple[str, int, float], float] = field(default_factory=dict)
    broken: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    changes: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    entries: list[SweepRow] = field(default_factory=list)
    chosen: dict[str, Chosen] = field(default_factory=dict)

    def loss(self, arm: str, seed: int, rate: float | None = None) -> float:
        """An arm's loss: its effect, the seed's, its own noise, and how far the rate is off."""
        if (arm, seed) in self.losses:
            return self.losses[arm, seed]
        if rate and (arm, seed, rate) in self.trials:
            return self.trials[arm, seed, rate]
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
        setting = {KEY: rate} if rate else {}
        self.entries.append(SweepRow(arm, seed, name, digest, self.arms[arm], role, setting))
        directory = self.root / name
        if exists and not directory.exists():
            self._write(directory, arm, seed, rate)
        return directory

    def _write(self, directory: Path, arm: str, seed: int, rate: float | None) -> None:
        loss = self.loss(arm, seed, rate)
        known = {**KNOWN, **self.changes.get((arm, seed), {})}
        changes = {"learning_rate": rate or 3e-3, **known, **self.broken.get((arm, seed), {})}
        rows = history(loss, seed) if self.curves else None
        write_run(directory, arm, seed, result_of(arm, seed, loss, **changes), rows)

    def report(self) -> None:
        """Add every arm's runs with every seed, at the baseline's setting."""
        for arm in self.arms:
            for seed in self.seeds:
                self.add(arm, seed, REPORT, 3e-3 if self.tuned else None)

    def tune(self) -> None:
        """Add the trials of every value for every arm, and choose."""
        for arm in self.arms:
            for rate, seed in product(GRID, self.tuning_seeds):
                self.add(arm, seed, TUNE, rate)
            best = min(
                GRID, key=lambda rate: sum(self.loss(arm, seed, rate) for seed in self.tuning_seeds)
            )
            edges = {GRID[0]: "low", GRID[-1]: "high"}
            self.chosen[arm] = Chosen(best, edges.get(best))

    def tuned_runs(self) -> None:
        """Add every tuned arm's runs at its own best value."""
        for arm, choice in self.chosen.items():
            for seed in self.seeds:
                self.add(arm, seed, TUNED, choice.value)

    def declared(self) -> Study:
        """The study as `sweep.json` keeps it."""
        tune = (
            Tuning(KEY, list(GRID), list(self.tuning_seeds), 2, self.chosen) if self.tuned else None
        )
        return Study(
            name=self.root.name,
            baseline=self.baseline,
            arms=self.arms,
            controls=list(self.controls),
            seeds=list(self.seeds),
            contrasts=self.contrasts,
            margin=self.margin,
            primary=self.primary,
            tune=tune,
            published=self.published,
            ladder=self.ladder,
        )

    def plan(self) -> Path:
        """Write `sweep.json` and return the study's folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        command = f"python scripts/train.py -m study={self.root.name}"
        record = SweepRecord(self.root.name, command, [], self.declared(), runs=self.entries)
        write_sweep(self.root, record)
        record_command(self.root, record)
        return self.root

    def whole(self) -> Path:
        """A finished study: reports, and trials and tuned runs where it is tuned."""
        self.report()
        if self.tuned:
            self.tune()
            self.tuned_runs()
        return self.plan()
