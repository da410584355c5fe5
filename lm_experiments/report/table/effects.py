"""The section of a table on a grid: main effects, interactions, and what depends on what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lm_experiments.report.statistics.grid import find_grid
from lm_experiments.report.statistics.verdicts import LEVEL
from lm_experiments.report.table.columns import bounds_text, p_text
from lm_experiments.report.table.rows import Table
from lm_experiments.report.table.section import Section
from lm_experiments.report.table.warnings import listed
from lm_experiments.rundir.measures import UNITS
from lm_experiments.rundir.words import counted

if TYPE_CHECKING:
    from lm_experiments.report.statistics.factorial import Effect, Effects

HEADING = "Main effects and interactions"
TITLES = ("effect", "difference", "95 % interval", "p (Holm)")
MOST_EFFECTS = 20
MOST_PRINTED = 12


def effects_section(table: Table) -> Section:
    """The section; of a table whose arms form no grid, one without rows."""
    shown = shown_effects(table.effects) if table.effects else ()
    return Section(
        HEADING,
        TITLES,
        tuple(map(effect_cells, shown)),
        tuple(effect_notes(table)),
        figure="effects",
        printed=bool(table.effects and len(table.effects.effects) <= MOST_PRINTED),
    )


def shown_effects(effects: Effects) -> tuple[Effect, ...]:
    """All effects; of more than `MOST_EFFECTS`, the main ones and the resolved interactions."""
    if len(effects.effects) <= MOST_EFFECTS:
        return effects.effects
    return tuple(e for e in effects.effects if len(e.factors) == 1 or resolved(e))


def resolved(effect: Effect) -> bool:
    """Whether the adjusted p is below the level."""
    return effect.adjusted_p < LEVEL


def effect_label(effect: Effect) -> str:
    """The step or steps of an effect, such as "placement post x ffn swiglu"."""
    steps = zip(effect.factors, effect.levels, strict=True)
    return " x ".join(f"{factor} {level}" for factor, level in steps)


def effect_cells(effect: Effect) -> tuple[str, str, str, str]:
    """The texts under `TITLES`."""
    return (
        effect_label(effect),
        f"{effect.mean:+.4f}",
        bounds_text(effect.low, effect.high),
        p_text(effect.adjusted_p),
    )


def effect_notes(table: Table) -> list[str]:
    """How to read the effects, and for each main effect whether it depends on the other keys."""
    effects = table.effects
    if effects is None:
        return _failing(table)
    left_out = len(effects.effects) - len(shown_effects(effects))
    lines = [_reading(table, effects), *_answers(effects)]
    if left_out:
        lines.append(
            f"Left out: {counted(left_out, 'interaction')} with p of {LEVEL:g} or more; "
            "table.json has all."
        )
    return lines


def _failing(table: Table) -> list[str]:
    failing = [row.arm for row in table.rows if any(run.failing for run in row.runs)]
    grid = find_grid(table.sweep, table.baseline)
    if not failing or grid is None or not table.sweep.complete:
        return []
    return [
        f"The arms form a grid of {listed(grid.factors)}, but main effects and interactions are "
        f"not defined where runs fail: {listed(failing)}."
    ]


def _reading(table: Table, effects: Effects) -> str:
    declared = not table.plan.exploratory
    exploratory = "" if declared else "Exploratory, as not all was declared before: "
    seeds = ", ".join(map(str, effects.seeds))
    tuning = ", without the noise of tuning" if table.tune else ""
    missing = ", ".join(map(str, effects.incomplete_seeds))
    left_out = f" (without {missing}, which not every arm has)" if missing else ""
    return (
        f"{exploratory}{UNITS[table.metric]}, over seeds {seeds}{left_out}, against the levels of "
        f"{table.baseline}, averaged over the other keys. An interaction is how much more the one "
        "step costs together with the other; it is zero where effects add up. p is of plain "
        f"paired t tests, adjusted after Holm over these {len(effects.effects)} effects{tuning}."
    )


def _answers(effects: Effects) -> Iterator[str]:
    """A sentence for each main effect; in large grids for those that depend on others."""
    large = len(effects.effects) > MOST_EFFECTS
    silent = 0
    for main in effects.main:
        found = effects.interactions(main)
        if large and not any(map(resolved, found)):
            silent += 1
        else:
            yield f"{_step(effects, main)}{_dependence(effects, main, found)}."
    if silent:
        yield f"{silent} main effects show no dependence on other keys that these seeds resolve."


def _step(effects: Effects, main: Effect) -> str:
    against = effects.factors[main.factors[0]][0]
    return f"{effect_label(main)} against {against}: {_numbers(main)} on average"


def _dependence(effects: Effects, main: Effect, found: Sequence[Effect]) -> str:
    """On which other keys the step depends, with its size at each of their levels."""
    strongest = sorted(found, key=lambda effect: effect.p)
    others = [factor for factor in effects.factors if factor not in main.factors]
    first = {other: next(e for e in strongest if other in e.factors) for other in others}
    sizes = {other: _sizes(effects, main, other, item) for other, item in first.items()}
    if depends := [sizes[other] for other, item in first.items() if resolved(item)]:
        return f"; it depends on the others: {'; '.join(depends)}"
    nearest = min(first, key=lambda other: first[other].p)
    return f"; no dependence on the others is resolved (nearest: {sizes[nearest]})"


def _sizes(effects: Effects, main: Effect, other: str, item: Effect) -> str:
    at = effects.by_level(main, other).items()
    sizes = ", ".join(f"with {other}={level} {size:+.4f}" for level, size in at)
    return f"{sizes}, {_interaction(item)}"


def _interaction(effect: Effect) -> str:
    p = p_text(effect.adjusted_p)
    return f"interaction {effect_label(effect)} {_numbers(effect)}, p {p}"


def _numbers(effect: Effect) -> str:
    return f"{effect.mean:+.4f} {bounds_text(effect.low, effect.high)}"
