"""Simulated studies that go the way of a table: runs, planned contrasts, tests, verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from simulated_noise import differences

from lm_experiments.report.collect import Run, Sweep
from lm_experiments.report.statistics.compare import Comparison, compare, plan_contrasts
from lm_experiments.report.statistics.estimates import Array
from lm_experiments.report.statistics.tuned import Tuned
from lm_experiments.report.statistics.tuning_noise import choice_noise
from lm_experiments.rundir.ledger import DECLARED, Entry, declaration_of
from lm_experiments.rundir.results import DONE, Result
from lm_experiments.rundir.study import Study
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow

RUN_SD = 0.01
CLAIMS = ("better", "worse")
TUNED_PLACES = np.arange(-2, 3)
CURVATURE = 0.01


@dataclass(frozen=True)
class Rates:
    """Of many studies: shares with a false claim, and of intervals that hold the truth.

    `coverage` is that of the intervals of all arms, `lowest_coverage` that of one arm.
    `found` is the share of studies whose first arm has a verdict of the sign of its effect, and
    `equivalent` the share in which any arm is called so.
    """

    false_claims: float
    coverage: float
    lowest_coverage: float
    found: float
    equivalent: float


def study_of(losses: Mapping[str, Array], margin: float | None) -> Sweep:
    """A finished study whose runs have these losses by seed; the first arm is the baseline."""
    runs = tuple(
        Run(
            SweepRow(arm, seed, f"{arm}-{seed}"),
            Path(f"{arm}-{seed}"),
            DONE,
            Result(DONE, arm, seed, val_loss=loss),
        )
        for arm, values in losses.items()
        for seed, loss in enumerate(values.tolist())
    )
    arms: dict[str, list[str]] = {arm: [] for arm in losses}
    study = Study("simulated", next(iter(losses)), arms, margin=margin)
    record = SweepRecord(study=study)
    declared = Entry(DECLARED, "", asdict(declaration_of(record)))
    return Sweep(Path(), record, runs, ledger=(declared,))


def comparisons(
    losses: Mapping[str, Array],
    margin: float | None = None,
    tuned: Mapping[str, Tuned] | None = None,
) -> list[Comparison]:
    """What a table says of each arm, from losses by seed."""
    sweep = study_of(losses, margin)
    by_arm = {arm: [run for run in sweep.runs if run.arm == arm] for arm in losses}
    plan = plan_contrasts(sweep, sweep.baseline, "val_loss")
    return compare(plan, by_arm, complete=True, tuned=tuned)


def rates(
    kind: str,
    studies: int,
    arms: int,
    seeds: int,
    effect: float = 0.0,
    margin: float | None = None,
) -> Rates:
    """The rates of studies with this noise; `effect`, in run-sds, is that of the first arm."""
    noise = RUN_SD * differences(kind, studies, arms, seeds)
    shared = np.random.default_rng(1).normal(3.0, 0.05, (studies, seeds))
    found = []
    for row, base in zip(noise, shared, strict=True):
        row[0] += effect * RUN_SD
        losses = {"base": base, **{f"arm {at}": base + own for at, own in enumerate(row)}}
        found.append(comparisons(losses, margin))
    return counted(found, [effect * RUN_SD, *[0.0] * (arms - 1)])


def tuned_rates(studies: int, arms: int, seeds: int, tuning_seeds: int) -> Rates:
    """The rates of studies of arms that do nothing, each tuned over five values by itself.

    No edge of the grid silences a verdict, so that all false claims are counted.
    """
    generator = np.random.default_rng(6)
    true = CURVATURE * (TUNED_PLACES - 0.45) ** 2
    found = []
    for _ in range(studies):
        losses, tuned = {}, {}
        for name in ("base", *(f"arm {at}" for at in range(arms))):
            trials = true[:, None] + RUN_SD * generator.normal(size=(len(true), tuning_seeds))
            best = int(trials.mean(axis=1).argmin())
            losses[name] = 3.0 + true[best] + RUN_SD * generator.normal(size=seeds)
            tuned[name] = Tuned(False, tuning_seeds, choice_noise(trials), None)
        found.append(comparisons(losses, None, tuned))
    return counted(found, [0.0] * arms)


def counted(found: list[list[Comparison]], effects: list[float]) -> Rates:
    wrong, right, equivalent = 0, 0, 0
    covered = np.zeros(len(effects))
    for study in found:
        words = [item.verdict for item in study]
        pairs = list(zip(words, effects, strict=True))
        wrong += any(word in CLAIMS and not effect for word, effect in pairs)
        right += words[0] == ("better" if effects[0] < 0 else "worse")
        equivalent += "equivalent" in words
        for at, (item, effect) in enumerate(zip(study, effects, strict=True)):
            c = item.contrast
            assert c is not None and c.low is not None and c.high is not None
            covered[at] += c.low <= effect <= c.high
    total = len(found)
    coverage = covered / total
    return Rates(
        wrong / total,
        float(coverage.mean()),
        float(coverage.min()),
        right / total,
        equivalent / total,
    )
