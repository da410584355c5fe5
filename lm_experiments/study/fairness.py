"""What the plan says of arms that are compared: what they have equally much of, and what not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lm_experiments.report.table.cost import COSTS, Cost, caveat, shares, unlike_size
from lm_experiments.rundir.results import SECONDS, STEPS
from lm_experiments.rundir.study import Study
from lm_experiments.study.plan import PlannedRun

Pairs = Mapping[tuple[str, str], tuple[PlannedRun, PlannedRun]]


def fairness(arms: Mapping[str, PlannedRun], study: Study | None) -> list[str]:
    """Return the lines on matched parameters, equal budgets, and arms of unlike size."""
    first = next(iter(arms))
    compared = study.compared if study else [[arm, first] for arm in arms if arm != first]
    pairs = {(a, b): (arms[a], arms[b]) for a, b in compared if a in arms and b in arms}
    unlike = {
        f"{arm} against {reference}": reasons
        for (arm, reference), runs in pairs.items()
        if (reasons := unlike_size(*map(_cost, runs)))
    }
    return [_matching(arms, pairs), *_budgets(arms, study, first), *caveat(unlike)]


def scaled(arms: Mapping[str, PlannedRun]) -> bool:
    """Return whether steps of an arm follow from the baseline's."""
    return any(run.config.trainer.equal != STEPS for run in arms.values())


def _matching(arms: Mapping[str, PlannedRun], pairs: Pairs) -> str:
    """Return the rule by which arms are matched, and what it reached."""
    rules = sorted({run.config.model.match for run in arms.values()})
    cost, said = (
        ("parameters", "parameters")
        if rules == ["total"]
        else ("ffn", "feed-forward weights per layer")
    )
    reached = [abs(_layer_shares(*runs).get(cost, 0.0)) for runs in pairs.values()]
    return (
        f"match={','.join(rules)}: {said} of arms that are compared differ by "
        f"{max(reached, default=0.0):.2%} at most."
    )


def _layer_shares(own: PlannedRun, reference: PlannedRun) -> dict[str, float]:
    """Return the shares by which models differ, feed-forwards by layer."""
    layers = own.config.model.n_layers / reference.config.model.n_layers
    found = shares(_cost(own), _cost(reference))
    return {**found, "ffn": (1 + found["ffn"]) / layers - 1}


def _budgets(arms: Mapping[str, PlannedRun], study: Study | None, first: str) -> list[str]:
    """Return how nearly arms have as much as the baseline of what they were to be equal in."""
    lines = []
    for equal in dict.fromkeys(run.config.trainer.equal for run in arms.values()):
        own = {arm: run for arm, run in arms.items() if run.config.trainer.equal == equal != STEPS}
        references = {arm: arms[study.baseline_of(arm) if study else first] for arm in own}
        found = [
            abs(shares(_cost(run), _cost(_as_unit(references[arm])))[equal])
            for arm, run in own.items()
        ]
        if found:
            timed = ", by steps timed in turns here without compilation" if equal == SECONDS else ""
            lines.append(
                f"trainer.equal={equal}: {COSTS[equal]} of training differ from the baseline's by "
                f"{max(found):.2%} at most{timed}."
            )
    return lines


def _as_unit(baseline: PlannedRun) -> PlannedRun:
    """Return a baseline with the time of its step, the unit, also where it asks for none itself."""
    return replace(baseline, step_time=baseline.step_time or 1.0)


def _cost(run: PlannedRun) -> Cost:
    model, steps = run.config.model, run.config.trainer.max_steps
    return Cost(
        tokens=run.config.tokens,
        ffn=run.ledger.parts["ffn"],
        parameters=run.ledger.parameters,
        flops=run.flops,
        seconds=steps * run.step_time if run.step_time else None,
        n_layers=model.n_layers,
        d_model=model.d_model,
        tolerance=model.match_tolerance,
        step=1 / steps,
    )
