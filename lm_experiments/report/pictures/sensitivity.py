"""Draw how each arm's loss depends on the tuned key, and what further trials would have bought."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from lm_experiments.report.pictures.curves import spread
from lm_experiments.report.pictures.figure import (
    INK,
    LineStyle,
    line_styles,
    nearest,
    picture,
    plain_frame,
    short_numbers,
    shortened,
)
from lm_experiments.report.statistics.tuning import expected_best
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.rundir.measures import MEASURE_TITLES, UNITS
from lm_experiments.rundir.study import Chosen, Tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_INCHES = (11.0, 5.0)
LEFT, BOTTOM, HEIGHT, GAP, SMALL = 0.07, 0.12, 0.8, 0.07, 0.2
CHARACTER_WIDTH = 0.0062
LONGEST_LABEL = 36
# Characters of all ticks together.
MOST_TICKS = 60
FAR, FAR_BEST = 4.0, 2.5


@dataclass(frozen=True)
class Response:
    """An arm's trials: the mean loss of each value, None where one of its trials failed.

    `sensitivity` is the mean excess loss over the values (Wortsman et al. 2023), None where it is
    not known.
    """

    arm: str
    losses: dict[float, float | None]
    trials: tuple[float, ...]
    choice: Chosen | None
    sensitivity: float | None = None

    @property
    def label(self) -> str:
        """The arm's name, with its choice and sensitivity once tuning has ended."""
        name = shortened(self.arm, LONGEST_LABEL)
        if self.choice is None:
            return name
        more = "" if self.sensitivity is None else f", sensitivity {self.sensitivity:.3f}"
        return f"{name} ({self.choice.value:.3g}{', edge' if self.choice.edge else ''}){more}"


def draw_sensitivity(table: Table, path: Path | None = None) -> Figure | None:
    """Draw the picture, into a file with `path`; None without trials that have ended.

    Left: mean validation loss of each value trained to the end, the chosen one filled, failed ones
    as crosses on the upper edge. Right: the expected best of k trials (Dodge et al. 2019), which
    halving leaves unknown.
    """
    found = responses(table)
    if table.tune is None or not found:
        return None
    styles = line_styles(table)
    right = CHARACTER_WIDTH * max(len(response.label) for response in found) + 0.035
    width = 1 - LEFT - right - GAP - SMALL
    with picture(path, SIZE_INCHES) as figure:
        panel = figure.add_axes((LEFT, BOTTOM, width, HEIGHT))
        _sensitivity(panel, table, table.tune.key, found, styles)
        small = figure.add_axes((LEFT + width + right + GAP - 0.02, BOTTOM, SMALL, HEIGHT))
        _budget(small, found, styles)
        small.set_ylabel(f"lowest {MEASURE_TITLES[table.trial_metric]}", color=INK)
    return figure


def responses(table: Table) -> list[Response]:
    """The trials of every arm that has any which ended, in the table's order."""
    found = [_response(table, table.tune, row) for row in table.rows] if table.tune else []
    return [response for response in found if response.losses]


def _response(table: Table, tuning: Tuning, row: Row) -> Response:
    trials: dict[float, list[float]] = {}
    for run in table.sweep.trials:
        value = run.setting.get(tuning.key)
        if run.arm == row.arm and run.finished and value is not None:
            loss = run.value(table.trial_metric)
            trials.setdefault(value, []).append(math.inf if loss is None else loss)
    means = {value: fmean(trials[value]) for value in sorted(trials)}
    losses = {value: mean if math.isfinite(mean) else None for value, mean in means.items()}
    sensitivity = row.tuned.sensitivity if row.tuned else None
    # The best of k trials is not known of those that halving left.
    bought = () if tuning.halving else tuple(chain(*trials.values()))
    return Response(row.arm, losses, bought, row.chosen, sensitivity)


def focus(found: Sequence[Response]) -> tuple[float, float]:
    """The y limits that hold the lower part of every arm's curve, and not what blew up."""
    losses = [loss for r in found for loss in r.losses.values() if loss is not None]
    return _limits(losses, FAR) if losses else (0.0, 1.0)


def _limits(losses: Sequence[float], far: float) -> tuple[float, float]:
    low = min(losses)
    high = low + nearest([loss - low for loss in losses], far)
    room = 0.06 * (high - low) or 0.01 * abs(low) or 1.0
    return low - room, high + room


def _sensitivity(
    axes: Axes,
    table: Table,
    key: str,
    found: Sequence[Response],
    styles: dict[str, LineStyle],
) -> None:
    plain_frame(axes, "y")
    axes.set_ylim(*focus(found))
    values = sorted({value for response in found for value in response.losses})
    if min(values) > 0:
        axes.set_xscale("log")
        room = (values[-1] / values[0]) ** 0.04 if len(values) > 1 else 2.0
        axes.set_xlim(values[0] / room, values[-1] * room)
    axes.set_xticks(values, short_numbers(values, MOST_TICKS))
    axes.set_xticks([], minor=True)
    measure = (
        "validation loss"
        if table.trial_metric == "val_loss"
        else MEASURE_TITLES[table.trial_metric]
    )
    axes.set_title(f"{table.sweep.record.name}: {measure} by {key}", loc="left", color=INK)
    axes.set_xlabel(f"{key} ({_signs(found, axes.get_ylim()[1])})", color=INK)
    axes.set_ylabel(f"{measure} ({UNITS[table.trial_metric]})", color=INK)
    for order, response in enumerate(found):
        _line(axes, response, styles[response.arm], order)
    _labels(axes, found, styles)


def _signs(found: Sequence[Response], top: float) -> str:
    """What the signs that are in the panel mean."""
    losses = [loss for response in found for loss in response.losses.values()]
    meanings = {
        "filled: chosen": any(r.choice for r in found),
        "filled arrow: at the grid's edge": any(r.choice and r.choice.edge for r in found),
        "cross: failed": None in losses,
        "up: off the scale": any(loss is not None and loss > top for loss in losses),
    }
    return "; ".join(text for text, there in meanings.items() if there) or "no choice yet"


def _line(axes: Axes, response: Response, style: LineStyle, order: int) -> None:
    low, high = axes.get_ylim()
    points = [(value, loss) for value, loss in response.losses.items() if loss is not None]
    look: dict[str, Any] = {"color": style.color, "zorder": 3 + order / 1000}
    if points:
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, linestyle=style.dashes, linewidth=1.6, **look)
        axes.plot(xs, ys, "o", markerfacecolor="white", markersize=5, **look)
    top = high - (0.012 + 0.022 * order) * (high - low)
    lost = [value for value, loss in response.losses.items() if loss is None]
    above = [value for value, loss in points if loss > high]
    axes.plot(lost, [top] * len(lost), "x", markersize=6, markeredgewidth=1.6, **look)
    axes.plot(above, [top] * len(above), "^", markersize=5, **look)
    choice = response.choice
    if choice is not None and (loss := response.losses.get(choice.value)) is not None:
        outward = "<" if choice.edge == "low" else ">"
        mark = outward if choice.edge else "o"
        axes.plot([choice.value], [loss], mark, markersize=9, markeredgecolor="white", **look)


def _labels(axes: Axes, found: Sequence[Response], styles: dict[str, LineStyle]) -> None:
    low, high = axes.get_ylim()
    ends = []
    for response in found:
        known = [loss for loss in response.losses.values() if loss is not None]
        end = list(response.losses.values())[-1]
        # Lines that leave the panel are named in the order of their best value, at its top.
        ends.append((min(end if end is not None else high, high), min(known, default=high)))
    order = sorted(range(len(found)), key=lambda i: ends[i])
    places = spread([ends[i][0] for i in order], 0.05 * (high - low), low, high)
    for i, place in zip(order, places, strict=True):
        spot = (1.035, (place - low) / (high - low))
        ys = ((max(low, ends[i][0]) - low) / (high - low), spot[1])
        style = styles[found[i].arm]
        look: dict[str, Any] = {"color": style.color, "lw": 1.4, "ls": style.dashes}
        axes.plot((1.0, 1.028), ys, clip_on=False, transform=axes.transAxes, **look)
        axes.text(*spot, found[i].label, transform=axes.transAxes, va="center", size=9, color=INK)


def _budget(axes: Axes, found: Sequence[Response], styles: dict[str, LineStyle]) -> None:
    from matplotlib.ticker import MaxNLocator

    plain_frame(axes, "y")
    axes.set_title("expected best of k trials", loc="left", color=INK, size=10)
    axes.set_xlabel("k", color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    bought = [expected_best(response.trials) for response in found]
    finite = [loss for best in bought for loss in best if math.isfinite(loss)]
    if finite:
        axes.set_ylim(*_limits(finite, FAR_BEST))
    for response, best in zip(found, bought, strict=True):
        points = [(k, loss) for k, loss in enumerate(best, start=1) if math.isfinite(loss)]
        if points:
            xs, ys = zip(*points, strict=True)
            style = styles[response.arm]
            axes.plot(xs, ys, color=style.color, linestyle=style.dashes, marker="o", ms=3, lw=1.4)
