"""The contrasts of a table: which arm against which, with tests over the seeds and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING, Any

from lm_experiments.report.collect import Run, Sweep
from lm_experiments.report.statistics.contrasts import Contrast, adjust, contrast
from lm_experiments.report.statistics.failures import failure_verdict
from lm_experiments.report.statistics.tuned import EDGE_OF_GRID, Tuned, with_choices
from lm_experiments.report.statistics.verdicts import (
    BETTER,
    EQUIVALENT,
    EXPLORATORY,
    UNRESOLVED,
    WORSE,
    control_verdict,
    verdict,
)

if TYPE_CHECKING:
    from lm_experiments.report.statistics.noise import Noise

SAME_RUNS = "same runs"
# What a contrast lacks where it was not tested.
UNTESTED: Mapping[str, Any] = dict.fromkeys(
    (
        "p",
        "adjusted_p",
        "plain_p",
        "plain_adjusted_p",
        "test_error",
        "test_degrees",
        "equivalent_p",
        "within",
    )
)
RunsByArm = Mapping[str, Sequence[Run]]


@dataclass(frozen=True)
class Plan:
    """What is compared: (arm, reference) pairs, in one Holm family, and A/A controls beside it.

    `family` is the number of contrasts that Holm's procedure adjusts for. `declared` is False
    where the pairs follow from a baseline named after the runs were planned: it may have been
    chosen for its results, so the family is then all pairs of arms.
    """

    baseline: str
    pairs: tuple[tuple[str, str], ...]
    controls: frozenset[str]
    declared: bool
    family: int
    metric: str
    margin: float | None


@dataclass(frozen=True)
class Comparison:
    """One contrast; `verdict` is a word or two, and `control` marks an A/A control.

    `noise` splits its error into that of the seeds and that of the documents, where these are
    known.
    """

    arm: str
    reference: str
    contrast: Contrast | None
    verdict: str
    control: bool = False
    noise: Noise | None = None


def plan_contrasts(sweep: Sweep, baseline: str, metric: str) -> Plan:
    """A study's declared contrasts; otherwise every other arm against the baseline."""
    study = sweep.study
    # A margin in nats per token says nothing about bits per byte.
    margin = study.margin if study and metric == study.primary else None
    pairs = tuple((arm, baseline) for arm in sweep.arms if arm != baseline)
    if baseline != sweep.baseline:
        # The declared baseline's own control says nothing beside another arm.
        family = comb(len(sweep.arms), 2)
        return Plan(baseline, pairs, frozenset(), False, family, metric, margin)
    if study:
        pairs = tuple((arm, reference) for arm, reference in study.compared)
    controls = frozenset(study.controls if study else ())
    family = sum(arm not in controls for arm, _ in pairs)
    return Plan(baseline, pairs, controls, True, family, metric, margin)


def compare(
    plan: Plan, runs: RunsByArm, complete: bool, tuned: Mapping[str, Tuned] | None = None
) -> list[Comparison]:
    """Work out every planned contrast; no p and no verdict until all runs are `complete`.

    `tuned` holds the tuning of the arms, where the runs are those at each arm's own best value.
    """
    tuned = tuned or {}
    # An A/A control is no claim, so Holm's family is the other pairs.
    family = [pair for pair in plan.pairs if pair[0] not in plan.controls]
    # Pairs of the family that are not shown count as p = 1, which Holm's procedure allows.
    others = [None] * (plan.family - len(family))
    tested = _tests(family, [_contrast(plan, runs, pair) for pair in family])
    contrasts = [
        with_choices(item, pair, tuned, plan.margin)
        for item, pair in zip(tested, family, strict=True)
    ]
    adjusted = adjust([*contrasts, *others], plan.margin)
    found = dict(zip(family, adjusted, strict=False))
    found.update((pair, _contrast(plan, runs, pair)) for pair in plan.pairs if pair not in found)
    edges = {arm for arm, own in tuned.items() if own.edge}
    return [
        _on_edge(_comparison(plan, runs, pair, found[pair], complete), edges) for pair in plan.pairs
    ]


def _on_edge(item: Comparison, edges: Set[str]) -> Comparison:
    """No verdict where a better value of an arm may lie beyond the grid it was tuned over."""
    claims = (BETTER, WORSE, EQUIVALENT, UNRESOLVED, EXPLORATORY)
    at_edge = item.verdict in claims and not edges.isdisjoint((item.arm, item.reference))
    return replace(item, verdict=EDGE_OF_GRID) if at_edge else item


def _tests(
    family: Sequence[tuple[str, str]], contrasts: Sequence[Contrast | None]
) -> Sequence[Contrast | None]:
    """Moderated tests of arms that share one reference, plain tests elsewhere."""
    tested = zip(family, contrasts, strict=True)
    references = {reference for (_, reference), c in tested if c and c.p is not None}
    if len(references) != 1:
        return contrasts
    # Imported here because numpy and scipy are slow to load.
    from lm_experiments.report.statistics.moderated import moderate

    return moderate(contrasts)


def _contrast(plan: Plan, runs: RunsByArm, pair: tuple[str, str]) -> Contrast | None:
    arm, reference = (
        {run.seed: v for run in runs[name] if (v := run.value(plan.metric)) is not None}
        for name in pair
    )
    found = contrast(arm, reference, plan.margin)
    if found is None:
        return None
    # The survivors of a failing arm are no fair sample, and equal losses are no sample at all:
    # they stay in the family, where Holm counts them as p = 1.
    failing = any(run.failing for name in pair for run in runs[name])
    return replace(found, **UNTESTED) if failing or found.identical else found


def _comparison(
    plan: Plan,
    runs: RunsByArm,
    pair: tuple[str, str],
    found: Contrast | None,
    complete: bool,
) -> Comparison:
    arm, reference = (runs[name] for name in pair)
    control = pair[0] in plan.controls
    failure = _failure(plan, runs, pair) if complete else None
    word = (control_verdict if control else verdict)(found, failure, complete)
    if not plan.declared and word in (BETTER, WORSE, EQUIVALENT, UNRESOLVED):
        word = EXPLORATORY
    # Runs compared with themselves agree whatever they are.
    if complete and arm and {run.directory for run in arm} == {run.directory for run in reference}:
        word = SAME_RUNS
    if found and not complete:
        # A p looked up halfway decides when to stop.
        found = replace(found, **UNTESTED)
    return Comparison(*pair, found, word, control)


def _failure(plan: Plan, runs: RunsByArm, pair: tuple[str, str]) -> str | None:
    """Which of the two arms has failed runs, in words."""
    arm, reference = ([run.value("val_loss") for run in runs[name]] for name in pair)
    name = "baseline" if pair[1] == plan.baseline else pair[1]
    return failure_verdict(arm, reference, name)
