"""What a ladder says: the trend of each contrast over its rungs, and whether ranks agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from lm_experiments.report.collect import Run, Sweep
from lm_experiments.report.statistics.compare import Comparison, RunsByArm
from lm_experiments.report.statistics.contrasts import Contrast
from lm_experiments.report.statistics.ranks import mean_tau
from lm_experiments.report.statistics.trend import PARTS, Trend, Widen, judged, trend
from lm_experiments.report.statistics.tuned import Tuned, with_choices
from lm_experiments.report.statistics.verdicts import (
    NO_COMPARISON,
    TEST_WORDS,
)
from lm_experiments.rundir.ladder import Ladder, Rung
from lm_experiments.rundir.study import Study

# Two arms are ranked by the sign of their difference.
FEWEST_RANKED = 3


@dataclass(frozen=True)
class LadderContrast:
    """A declared contrast over the rungs, the smallest first.

    `trend` is None where its rungs share no seed, or their compute is not known; its p-values are
    None where a rung's contrast was not tested. `verdict` is one of those of `trend`, or says
    what keeps a rung from having one.
    """

    arm: str
    reference: str
    rungs: tuple[Comparison, ...]
    trend: Trend | None
    verdict: str


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau between the arms' ranks at two rungs, with its 95 % interval over seeds.

    (1 + tau) / 2 is the share of the pairs of arms that are in the same order.
    """

    lower: str
    upper: str
    tau: float
    low: float
    high: float
    seeds: int
    arms: tuple[str, ...]


@dataclass(frozen=True)
class LadderFindings:
    """All contrasts of a ladder; `compute` is the training FLOPs of its baseline at each rung."""

    ladder: Ladder
    compute: tuple[float | None, ...]
    contrasts: tuple[LadderContrast, ...]
    agreement: tuple[Agreement, ...]


def ladder_findings(
    sweep: Sweep,
    comparisons: Sequence[Comparison],
    runs: RunsByArm,
    metric: str,
    tuned: Mapping[str, Tuned],
) -> LadderFindings | None:
    """What a sweep's ladder says, from the adjusted contrasts of its table.

    None without a ladder, and where the contrasts of a table are not those of its rungs.
    """
    study = sweep.study
    ladder = study.ladder if study else None
    if study is None or ladder is None or not ladder.rungs:
        return None
    by_pair = {(item.arm, item.reference): item for item in comparisons if not item.control}
    found = {}
    for arm, reference in ladder.contrasts:
        pairs = [(rung.arms[arm], rung.arms[reference]) for rung in ladder.rungs]
        if all(pair in by_pair for pair in pairs):
            found[arm, reference] = tuple(by_pair[pair] for pair in pairs)
    if not found:
        return None
    compute = tuple(_compute(runs[rung.arms[ladder.baseline]]) for rung in ladder.rungs)
    trends = {pair: _trend(compute, items, tuned) for pair, items in found.items()}
    return LadderFindings(
        ladder, compute, _judged(ladder, found, trends), _agreement(study, ladder, runs, metric)
    )


def _judged(
    ladder: Ladder,
    found: Mapping[tuple[str, str], tuple[Comparison, ...]],
    trends: Mapping[tuple[str, str], Trend | None],
) -> tuple[LadderContrast, ...]:
    """Each contrast with its verdict; one that a rung keeps from having one is not tested."""
    words = {pair: _untested(ladder, items) for pair, items in found.items()}
    tested = judged([None if words[pair] else trends[pair] for pair in found])
    return tuple(
        LadderContrast(
            *pair,
            items,
            made or _without_p(trends[pair]),
            made.verdict if made else words[pair] or NO_COMPARISON,
        )
        for (pair, items), made in zip(found.items(), tested, strict=True)
    )


def _untested(ladder: Ladder, items: Sequence[Comparison]) -> str:
    """What keeps a rung's contrast from being tested; empty where all are."""
    words = [item.verdict for item in items]
    if len(set(words)) == 1:
        return "" if words[0] in TEST_WORDS else words[0]
    rungs = zip(words, ladder.rungs, strict=True)
    return next((f"{word} at {rung.label}" for word, rung in rungs if word not in TEST_WORDS), "")


def _without_p(found: Trend | None) -> Trend | None:
    if found is None:
        return None
    parts = {part: replace(getattr(found, part), p=None) for part in PARTS}
    return replace(found, **parts, kept_p=None)


def _trend(
    compute: Sequence[float | None], items: Sequence[Comparison], tuned: Mapping[str, Tuned]
) -> Trend | None:
    known = [flops for flops in compute if flops is not None]
    paired = [item.contrast for item in items if item.contrast and item.contrast.paired]
    rises = all(low < high for low, high in pairwise(known))
    if len(known) < len(items) or len(paired) < len(items) or not rises:
        return None
    return trend(known, paired, _widen(items, tuned))


def _widen(items: Sequence[Comparison], tuned: Mapping[str, Tuned]) -> Widen:
    """Add the noise of the choices that tuning made at each rung, by the weight of the rung."""

    def _widened(found: Contrast, weights: Sequence[float]) -> Contrast:
        scaled = {
            arm: _scaled(tuned[arm], weight**2)
            for item, weight in zip(items, weights, strict=True)
            for arm in (item.arm, item.reference)
            if arm in tuned
        }
        return with_choices(found, scaled, scaled, None) or found

    return _widened


def _scaled(tuned: Tuned, factor: float) -> Tuned:
    noise = tuned.noise
    return replace(tuned, noise=noise and replace(noise, variance=factor * noise.variance))


def _compute(runs: Sequence[Run]) -> float | None:
    """The training FLOPs of a run, the mean of those that are known."""
    known = [flops for run in runs if (flops := _flops(run)) is not None]
    return fmean(known) if known else None


def _flops(run: Run) -> float | None:
    result = run.result
    if result.train_flops is not None or None in (result.flops_per_token, result.tokens):
        return result.train_flops
    return float(result.flops_per_token or 0) * float(result.tokens or 0)


def _agreement(study: Study, ladder: Ladder, runs: RunsByArm, metric: str) -> tuple[Agreement, ...]:
    """The agreement of neighbouring rungs, and of the first with the last.

    A control, which is the baseline once more, is not ranked.
    """
    arms = [
        arm
        for arm, label in ladder.rungs[0].arms.items()
        if label not in study.controls
        and not any(run.failing for rung in ladder.rungs for run in runs[rung.arms[arm]])
    ]
    if len(arms) < FEWEST_RANKED:
        return ()
    pairs = [*pairwise(ladder.rungs), (ladder.rungs[0], ladder.rungs[-1])]
    found = (_between(lower, upper, arms, runs, metric) for lower, upper in pairs)
    return tuple(item for item in found if item)


def _between(
    lower: Rung, upper: Rung, arms: Sequence[str], runs: RunsByArm, metric: str
) -> Agreement | None:
    sides = [
        {arm: _losses(runs[rung.arms[arm]], metric) for arm in arms} for rung in (lower, upper)
    ]
    common = set.intersection(*(set(own) for side in sides for own in side.values()))
    first, second = (
        [[side[arm][seed] for arm in arms] for seed in sorted(common)] for side in sides
    )
    found = mean_tau(list(zip(first, second, strict=True)))
    return Agreement(lower.label, upper.label, *found, tuple(arms)) if found else None


def _losses(runs: Sequence[Run], metric: str) -> dict[int, float]:
    return {run.seed: v for run in runs if (v := run.value(metric)) is not None}
