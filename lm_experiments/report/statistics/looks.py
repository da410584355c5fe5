"""Verdicts of a study whose seeds are spent by rule: its looks so far, replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lm_experiments.report.statistics.contrasts import Contrast, Within, contrast
from lm_experiments.report.statistics.sequential import Decision, Rule, decide
from lm_experiments.report.statistics.verdicts import EQUIVALENT, LEVEL, MORE_SEEDS

Pair = tuple[str, str]
# Losses by arm and seed; None where a run failed, no entry where it has not ended.
Losses = Mapping[str, Mapping[int, float | None]]


def decisions(
    seeds: Sequence[int],
    looks: Sequence[int],
    pairs: Sequence[Pair],
    losses: Losses,
    margin: float | None,
) -> dict[Pair, Decision]:
    """What the looks came to for each contrast, up to the newest whose runs have all ended.

    `seeds` are those declared, in order; a look comes after so many of them. Nothing before the
    first look.
    """
    rule = Rule(tuple(looks))
    moderate = moderated(pairs)
    found: dict[Pair, Decision] = {}
    for at, size in enumerate(rule.looks):
        waiting = [pair for pair in pairs if not found or found[pair].verdict == MORE_SEEDS]
        seen = seeds[:size]
        ended = all(seed in losses[arm] for pair in waiting for arm in pair for seed in seen)
        if not waiting or not ended:
            break
        differences = {pair: _differences(losses, pair, seen) for pair in pairs}
        found = decide(rule, differences, at, margin, moderate)
    return found


def moderated(pairs: Sequence[Pair]) -> bool:
    """Whether tests are moderated: only arms with the same reference may share their variances."""
    return len(pairs) > 1 and len({reference for _, reference in pairs}) == 1


def decided_contrast(
    losses: Losses, pair: Pair, seeds: Sequence[int], decision: Decision, moderated: bool
) -> Contrast | None:
    """The contrast over the seeds that decided it, with the interval and p of its look.

    p is scaled so that it is compared with `LEVEL`, whatever share of it the look may spend.
    ``plain_p`` is set where the deciding test is `moderated`.
    """
    seen = seeds[: decision.seeds]
    arm, reference = (
        {seed: loss for seed in seen if (loss := losses[name].get(seed)) is not None}
        for name in pair
    )
    found = contrast(arm, reference)
    if found is None or decision.low is None or decision.high is None:
        return found
    scale = LEVEL / decision.alpha
    within = None
    if decision.within is not None and decision.equivalent_p is not None:
        adjusted = min(1.0, decision.equivalent_p * scale)
        within = Within(adjusted, decision.verdict == EQUIVALENT, *decision.within)
    return replace(
        found,
        half_width=(decision.high - decision.low) / 2,
        adjusted_p=min(1.0, decision.p * scale),
        plain_p=found.p if moderated else None,
        within=within,
    )


def _differences(losses: Losses, pair: Pair, seeds: Sequence[int]) -> list[float | None]:
    """The paired differences over the seeds which both arms have, in order."""
    arm, reference = (losses[name] for name in pair)
    both = [(arm[seed], reference[seed]) for seed in seeds if seed in arm and seed in reference]
    return [None if a is None or b is None else a - b for a, b in both]
