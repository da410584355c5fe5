"""What the browser draws, as plain JSON: numbers and names, which `page.js` gives to Plotly.

The numbers are those of the table's own objects. Curves are thinned by `thinned`; nothing else is
left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product
from statistics import fmean
from typing import TYPE_CHECKING, Any

from lm_experiments.report.pictures.contexts import context_curves, unit_of
from lm_experiments.report.pictures.curves import Curve, arm_curve, labelled, scales_of, usual_axis
from lm_experiments.report.pictures.figure import COLORS, line_styles
from lm_experiments.report.pictures.forest import ordered
from lm_experiments.report.pictures.intervals import Interval
from lm_experiments.report.pictures.ladder import contrasts_of, drawable
from lm_experiments.report.pictures.sensitivity import responses
from lm_experiments.report.statistics.compare import Comparison
from lm_experiments.report.statistics.verdicts import BETTER, EQUIVALENT, WORSE
from lm_experiments.report.style import AXES, STEPS
from lm_experiments.report.table.columns import bounds_text, p_text, si
from lm_experiments.report.table.effects import effect_label, resolved, shown_effects
from lm_experiments.report.table.ladder import contrast_label
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.rundir.diagnostics import STATISTICS, by_part, read_diagnostics
from lm_experiments.rundir.measures import MEASURE_TITLES, UNITS, sign_of
from lm_experiments.rundir.metrics import Row as Logged

if TYPE_CHECKING:
    from lm_experiments.report.statistics.factorial import Effect

Json = dict[str, Any]
# Dashes (pixels drawn, pixels left out) and marks go round in cycles of lengths without a common
# factor, so that 28 arms differ without colour.
DASHES = ("", "7 3", "2 2", "9 3 2 3")
MARKS = ("circle", "triangle-up", "square", "diamond", "cross", "x", "triangle-down")
MEASURES = {
    "val/loss": "validation loss (nats per token)",
    "train/loss": "training loss (nats per token)",
}
# All curves of a page together, and each of them, have about so many points.
MOST_POINTS, MOST_OF_A_CURVE, FEWEST_OF_A_CURVE = 36_000, 400, 40


def looks(table: Table) -> dict[str, Json]:
    """Return each arm's colour, dash and mark; dash and mark alone tell arms apart."""
    colors = {arm: style.color for arm, style in line_styles(table).items()}
    return {
        arm: {
            "color": colors[arm],
            "dash": DASHES[at % len(DASHES)],
            "mark": MARKS[at % len(MARKS)],
        }
        for at, arm in enumerate(table.sweep.arms)
    }


def curves(table: Table) -> Json | None:
    """Return the mean loss of each arm's runs by step, with the sd over its seeds, None without.

    `scales` says how much of each axis an arm's runs have for a step.
    """
    found = {
        row.arm: {key: c for key in MEASURES if (c := arm_curve(row, None, key)) is not None}
        for row in table.rows
    }
    drawn = [curve for own in found.values() for curve in own.values()]
    if not drawn:
        return None
    most = max(FEWEST_OF_A_CURVE, min(MOST_OF_A_CURVE, MOST_POINTS // len(drawn)))
    shown = labelled([next(iter(own.values())) for own in found.values() if own])
    arms: list[Json] = [
        {
            "arm": row.arm,
            "shown": any(curve.row is row for curve in shown),
            "trusted": bool(row.usable),
            "scales": _scales(row),
            "lines": {key: _line(curve, most) for key, curve in found[row.arm].items()},
        }
        for row in table.rows
        if found[row.arm]
    ]
    names = {key: text for key, text in MEASURES.items() if any(key in a["lines"] for a in arms)}
    axes = {key: text for key, text in AXES.items() if any(key in a["scales"] for a in arms)}
    # Arms with unequal batches are comparable by tokens and not by steps.
    first = usual_axis(table.sweep.runs)
    return {"measures": names, "axes": axes, "axis": first, "arms": arms, "most": most}


def layers(table: Table) -> Json | None:
    """Return what the parts of each arm's models did at the last look, None without diagnostics.

    A value is the mean over the arm's usable runs, or over those there are.
    """
    arms: list[Json] = []
    for row in table.rows:
        rows = [read_diagnostics(run.directory)[-1:] for run in row.usable or row.known]
        lines = _by_statistic(list(chain.from_iterable(rows)))
        if lines:
            arms.append({"arm": row.arm, "lines": lines})
    known = {key: text for key, text in STATISTICS.items() if any(key in a["lines"] for a in arms)}
    return {"statistics": known, "arms": arms} if arms else None


def _by_statistic(looks: Sequence[Logged]) -> Json:
    found: dict[str, dict[str, list[float]]] = {}
    for look, statistic in product(looks, STATISTICS):
        for part, value in by_part(look, statistic).items():
            found.setdefault(statistic, {}).setdefault(part, []).append(value)
    return {
        statistic: {"x": list(parts), "y": [fmean(values) for values in parts.values()]}
        for statistic, parts in found.items()
    }


def forest(table: Table) -> Json | None:
    """Return every contrast that has an interval; None without one."""
    items = ordered(table)
    if not any(item.contrast and item.contrast.half_width is not None for item in items):
        return None
    several = {reference for _, reference in table.plan.pairs} != {table.baseline}
    rows = [
        _interval(
            f"{item.arm} - {item.reference}" if several else item.arm,
            item.contrast,
            item.verdict,
            _kind(item),
        )
        for item in items
        if item.contrast
    ]
    against = "its reference" if several else table.baseline
    title = f"arm - {against} ({UNITS[table.metric]})"
    return {"rows": rows, "title": title, "margin": table.plan.margin}


def effects(table: Table) -> Json | None:
    """Return the main effects and interactions of a grid, None where the arms form none."""
    if table.effects is None:
        return None
    rows = [
        _interval(
            effect_label(e), e, f"p {p_text(e.adjusted_p)}", _effect_kind(e, sign_of(table.metric))
        )
        for e in shown_effects(table.effects)
    ]
    title = f"effect ({UNITS[table.metric]})"
    return {"rows": rows, "title": title, "margin": None}


def ladder(table: Table) -> Json | None:
    """Return each difference of a ladder by the compute of its rungs, None without one."""
    found = table.ladder
    lines = drawable(found) if found else []
    if found is None or not lines:
        return None
    rungs = zip(found.ladder.rungs, found.compute, strict=True)
    return {
        "ticks": [f"{rung.label}\n{si(flops)} FLOPs" for rung, flops in rungs],
        "x": list(found.compute),
        "lines": [
            {
                "label": f"{contrast_label(item)}: {item.verdict}",
                "color": COLORS[at % len(COLORS)],
                "dash": DASHES[at % len(DASHES)],
                "mark": MARKS[at % len(MARKS)],
                "y": [rung.mean for rung in contrasts_of(item)],
                "reach": [rung.half_width or 0.0 for rung in contrasts_of(item)],
            }
            for at, item in enumerate(lines)
        ],
        "title": f"difference ({UNITS[table.metric]})",
        "baseline": found.ladder.baseline,
    }


def sensitivity(table: Table) -> Json | None:
    """Return each arm's mean trial loss by the tuned value, None without trials that ended."""
    found = responses(table)
    if table.tune is None or not found:
        return None
    arms = [
        {
            "arm": response.arm,
            "x": list(response.losses),
            "y": list(response.losses.values()),
            "chosen": response.choice.value if response.choice else None,
        }
        for response in found
    ]
    measure = f"{MEASURE_TITLES[table.trial_metric]} ({UNITS[table.trial_metric]})"
    return {"arms": arms, "key": table.tune.key, "title": measure}


def contexts(table: Table) -> Json | None:
    """Return each arm's loss by context length, None without two contexts."""
    if table.elsewhere is None or not (curves := context_curves(table)):
        return None
    arms = [
        {"arm": curve.arm, "x": list(curve.tokens), "y": list(curve.means), "chosen": None}
        for curve in curves
    ]
    unit = unit_of(table.elsewhere)
    return {"arms": arms, "key": "context length (tokens)", "title": f"loss ({unit})"}


def thinned(values: Sequence[float], most: int) -> list[int]:
    """Return the places of at most about ``most`` values that look like all of them.

    The first and the last are kept, and of each stretch between them the lowest and the highest.
    """
    if len(values) <= most:
        return list(range(len(values)))
    # Imported here because numpy is slow to load.
    import numpy as np

    parts = np.array_split(np.arange(len(values)), most // 2)
    numbers = np.asarray(values)
    ends = ((part[numbers[part].argmin()], part[numbers[part].argmax()]) for part in parts)
    return sorted({0, len(values) - 1, *map(int, chain.from_iterable(ends))})


def _line(curve: Curve, most: int) -> Json:
    kept = thinned(curve.mean, most)
    line = {"x": [curve.x[i] for i in kept], "y": [round(curve.mean[i], 5) for i in kept]}
    # One seed has no band.
    return line | ({"sd": [float(f"{curve.sd[i]:.3g}") for i in kept]} if any(curve.sd) else {})


def _scales(row: Row) -> dict[str, float]:
    """Return how much an arm has of each axis for a step, the mean over its runs that ended."""
    runs = row.usable or row.known
    known = {axis: scales_of(runs, axis) or {} for axis in AXES}
    rates = {axis: fmean(by_run.values()) for axis, by_run in known.items() if by_run}
    return {STEPS: 1.0} | rates


def _interval(label: str, found: Interval, word: str, kind: str) -> Json:
    bounds = "" if found.low is None or found.high is None else bounds_text(found.low, found.high)
    return {
        "label": label,
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
        "numbers": f"{found.mean:+.4f} {bounds}".rstrip(),
        "word": word,
        "kind": kind,
    }


def _kind(item: Comparison) -> str:
    return item.verdict if item.verdict in (BETTER, WORSE, EQUIVALENT) else "other"


def _effect_kind(effect: Effect, sign: int) -> str:
    if not resolved(effect):
        return "other"
    return BETTER if sign * effect.mean < 0 else WORSE
