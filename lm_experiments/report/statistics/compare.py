"""The contrasts of a table: which arm against which, with tests over the seeds and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING, Any

from lm_experiments.report.collect import Run, Sweep
from lm_experiments.report.statistics.contrasts import Contrast, adjust, contrast
from lm_experiments.report.statistics.exploratory import Pair, SeedPair, exploratory_reasons
from lm_experiments.report.statistics.failures import failure_verdict
from lm_experiments.report.statistics.tuned import EDGE_OF_GRID, Tuned, with_choices
from lm_experiments.report.statistics.verdicts import (
    EXPLORATORY,
    MORE_SEEDS,
    TEST_WORDS,
    UNRESOLVED,
    control_verdict,
    verdict,
)
from lm_experiments.rundir.measures import TESTED, sign_of

if TYPE_CHECKING:
    from lm_experiments.report.statistics.noise import Noise
    from lm_experiments.report.statistics.sequential import Decision

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
    """What is compared: (arm, reference) pairs, and A/A controls beside them.

    Declared contrasts are one Holm family. Those in `exploratory`, with the reason, were chosen
    when results could be known: p is adjusted over all pairs of arms, and there is no verdict.
    With `looks`, `seeds` are spent by rule: the results are looked at after so many of them.
    """

    baseline: str
    pairs: tuple[tuple[str, str], ...]
    controls: frozenset[str]
    exploratory: Mapping[tuple[str, str], str]
    arms: int
    metric: str
    margin: float | None
    seeds: tuple[int, ...] = ()
    looks: tuple[int, ...] = ()

    @property
    def tested(self) -> list[tuple[str, str]]:
        """The contrasts; an A/A control is no claim."""
        return [pair for pair in self.pairs if pair[0] not in self.controls]

    @property
    def confirmatory(self) -> list[tuple[str, str]]:
        """The contrasts declared before results were shown."""
        return [pair for pair in self.tested if pair not in self.exploratory]

    @property
    def all_pairs(self) -> int:
        """How many contrasts could have been chosen."""
        return comb(self.arms, 2)

    @property
    def family(self) -> int:
        """How many contrasts Holm's procedure adjusts for."""
        return len(self.confirmatory) or self.all_pairs


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
    in_its_unit = study is not None and metric in (study.primary, TESTED[study.primary])
    margin = study.margin if study and in_its_unit else None
    pairs = tuple((arm, baseline) for arm in sweep.arms if arm != baseline)
    if baseline != sweep.baseline:
        reason = (
            f"the baseline {baseline!r} was chosen in place of {sweep.baseline!r}, which the "
            "command or study declares"
        )
        # The declared baseline's own control says nothing beside another arm.
        reasons = dict.fromkeys(pairs, reason)
        return Plan(baseline, pairs, frozenset(), reasons, len(sweep.arms), metric, margin)
    if study:
        pairs = tuple((arm, reference) for arm, reference in study.compared)
    controls = frozenset(study.controls if study else ())
    if sweep.parts:
        apart = " and ".join(str(part.directory) for part in sweep.parts)
        reasons = dict.fromkeys(pairs, f"{apart} were declared each by itself, and not together")
    else:
        reasons = exploratory_reasons(sweep.ledger, _runs_of(sweep, pairs))
    by_rule = (tuple(study.seeds), tuple(study.looks)) if study and study.looks else ()
    return Plan(baseline, pairs, controls, reasons, len(sweep.arms), metric, margin, *by_rule)


def _runs_of(sweep: Sweep, pairs: Iterable[Pair]) -> dict[Pair, list[SeedPair]]:
    """The directories of the runs that the contrasts compare with each other, by seed."""
    runs: dict[str, dict[tuple[int, str], str]] = {arm: {} for arm in sweep.arms}
    for run in sweep.runs:
        runs[run.arm][run.seed, run.role] = run.row.directory
    return {
        (arm, reference): [
            (cell[0], own, runs[reference][cell])
            for cell, own in runs[arm].items()
            if cell in runs[reference]
        ]
        for arm, reference in pairs
    }


def compare(
    plan: Plan, runs: RunsByArm, complete: bool, tuned: Mapping[str, Tuned] | None = None
) -> list[Comparison]:
    """Work out every planned contrast; no p and no verdict until all runs are `complete`.

    `tuned` holds the tuning of the arms, where the runs are those at each arm's own best value.
    """
    tuned = tuned or {}
    found = {pair: _contrast(plan, runs, pair) for pair in plan.pairs}
    over_all = (
        _adjusted(plan, found, plan.tested, plan.all_pairs, tuned) if plan.exploratory else {}
    )
    decided = _decided(plan, runs) if complete else {}
    if decided:
        found.update((pair, item) for pair, (item, _) in decided.items())
    else:
        pairs = plan.confirmatory
        found.update(_adjusted(plan, found, pairs, len(pairs), tuned))
    found.update((pair, over_all[pair]) for pair in plan.exploratory if pair in over_all)
    undecided = {pair for pair, (_, made) in decided.items() if made.verdict == MORE_SEEDS}
    edges = {arm for arm, own in tuned.items() if own.edge}
    return [
        _on_edge(_comparison(plan, runs, pair, found[pair], complete, pair in undecided), edges)
        for pair in plan.pairs
    ]


def _adjusted(
    plan: Plan,
    found: Mapping[tuple[str, str], Contrast | None],
    pairs: Sequence[tuple[str, str]],
    family: int,
    tuned: Mapping[str, Tuned],
) -> dict[tuple[str, str], Contrast | None]:
    """The contrasts of these pairs, adjusted in a family of so many."""
    # Pairs of the family that are not shown count as p = 1, which Holm's procedure allows.
    others = [None] * (family - len(pairs))
    tested = zip(pairs, _tests(pairs, [found[pair] for pair in pairs]), strict=True)
    contrasts = [with_choices(item, pair, tuned, plan.margin) for pair, item in tested]
    adjusted = adjust([*contrasts, *others], plan.margin)
    return dict(zip(pairs, adjusted, strict=False))


def _decided(
    plan: Plan, runs: RunsByArm
) -> dict[tuple[str, str], tuple[Contrast | None, Decision]]:
    """The contrasts of a study that spends its seeds by rule; empty before its first look."""
    if not plan.looks or not plan.confirmatory:
        return {}
    # Imported here because numpy and scipy are slow to load.
    from lm_experiments.report.statistics.looks import decided_contrast, decisions, moderated

    losses = {
        arm: {run.seed: run.value(plan.metric) for run in its if run.finished}
        for arm, its in runs.items()
    }
    shared = moderated(plan.confirmatory)
    made_for = decisions(plan.seeds, plan.looks, plan.confirmatory, losses, plan.margin)
    decided = {}
    for pair, made in made_for.items():
        found = decided_contrast(losses, pair, plan.seeds, made, shared)
        if found and (made.mean is None or found.identical):
            found = replace(found, **UNTESTED)
        decided[pair] = found, made
    return decided


def _on_edge(item: Comparison, edges: Set[str]) -> Comparison:
    """No verdict where a better value of an arm may lie beyond the grid it was tuned over."""
    claims = (*TEST_WORDS, EXPLORATORY)
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
    undecided: bool,
) -> Comparison:
    arm, reference = (runs[name] for name in pair)
    control = pair[0] in plan.controls
    failure = _failure(plan, runs, pair) if complete else None
    if control:
        word = control_verdict(found, failure, complete)
    else:
        word = verdict(found, failure, complete, sign_of(plan.metric))
    if undecided and word == UNRESOLVED:
        word = MORE_SEEDS
    if pair in plan.exploratory and word in TEST_WORDS:
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
