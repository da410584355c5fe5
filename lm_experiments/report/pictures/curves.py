"""Draw the validation loss of every arm over training, legible with a dozen arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from lm_experiments.report.collect import VAL_LOSS, Run
from lm_experiments.report.pictures.figure import (
    FAINT,
    INK,
    LineStyle,
    level_key,
    line_styles,
    picture,
    plain_frame,
    wrapped,
)
from lm_experiments.report.statistics.contrasts import summarize
from lm_experiments.report.style import AXES, FLOPS, STEPS, TOKENS
from lm_experiments.report.table.columns import si
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.rundir.metrics import read_curve
from lm_experiments.rundir.names import METRICS
from lm_experiments.rundir.results import WAITING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, PANEL_HEIGHT = 10.0, 5.33
MOST_LABELS = 24
# The panel leaves out this much of training, whose drop would flatten what comes after.
SKIPPED_FRACTION = 0.25
# Inches above and below the panel, and of a line of labels and of notes.
TOP, BOTTOM, LABEL_LINE, NOTE_LINE = 0.55, 0.62, 0.2, 0.17
LEFT = 0.075
LABEL_GAP = 0.06
CHARACTER_WIDTH = 0.0066
# A longer label goes on in a line of its own, and a longer note too.
LONGEST_LABEL, LONGEST_NOTE = 44, 150


@dataclass(frozen=True)
class Curve:
    """An arm's mean validation loss (nats per token) at each x, with its sd (0 where n is 1).

    `final` is the loss the table shows, or the last of the curve for an arm without one.
    """

    row: Row
    x: tuple[float, ...]
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    final: float
    label: str


def draw_curves(
    table: Table, path: Path | None = None, against: str | None = None
) -> Figure | None:
    """Draw the picture, into a file with `path`; None when no run has a validation loss yet.

    The lines are means over an arm's usable runs (over whatever runs there are when none is
    usable, and labelled so), with a band of one sd, against one of `AXES`: None takes tokens
    where steps differ in size. Arms that have no line are named below, and so are grey ones.
    """
    against = against or usual_axis(table.sweep.runs)
    scales = scales_of(table.sweep.runs, against)
    curves = [c for row in table.rows if (c := arm_curve(row, scales)) is not None]
    if not curves:
        return None
    lines = [line for curve in labelled(curves) for line in curve.label.split("\n")]
    width = (1 - LEFT - CHARACTER_WIDTH * (max(map(len, lines)) + 1)) / (1 + LABEL_GAP)
    noted = wrapped(" ".join(_notes(table, curves)), LONGEST_NOTE)
    bottom = BOTTOM + NOTE_LINE * (noted.count("\n") + 1 if noted else 0)
    panel = max(PANEL_HEIGHT, LABEL_LINE * len(lines))
    height = TOP + panel + bottom
    with picture(path, (WIDTH, height)) as figure:
        axes = figure.add_axes((LEFT, bottom / height, width, panel / height))
        _draw(axes, table, curves, AXES[against], LABEL_LINE / panel)
        figure.text(0.1 / WIDTH, 0.06 / height, noted, size=8, color=INK, va="bottom")
    return figure


def usual_axis(runs: Sequence[Run]) -> str:
    """Tokens when steps differ in size and all are known, steps otherwise.

    Arms with unequal batches are comparable by tokens and not by steps.
    """
    scales = scales_of(runs, TOKENS) or {}
    complete = all(run.directory in scales for run in runs if run.usable)
    return TOKENS if complete and len(set(scales.values())) > 1 else STEPS


def scales_of(runs: Sequence[Run], against: str) -> dict[Path, float] | None:
    """What a step of each run is worth on one of `AXES`; None where it is a step.

    Runs that do not say are left out.
    """
    if against == STEPS:
        return None
    return {run.directory: worth for run in runs if (worth := run.per_step(against))}


def _notes(table: Table, curves: Sequence[Curve]) -> list[str]:
    """Sentences on the arms that a reader would look for in vain."""
    drawn = {curve.row.arm for curve in curves}
    absent = [f"{row.arm} ({row.outcome})" for row in table.rows if row.arm not in drawn]
    grey = len(curves) - len(labelled(curves))
    sentences = [f"Without a line: {'; '.join(absent)}."] if absent else []
    return sentences + ([f"Grey: the {grey} arms between those that are named."] if grey else [])


def arm_curve(
    row: Row, scales: dict[Path, float] | None = None, key: str = VAL_LOSS
) -> Curve | None:
    """Average the arm's runs at the steps all of them have; None when there are no such steps."""
    runs = row.usable or row.runs or row.known
    histories = [h for run in runs if (h := _history(run, scales, key))]
    if not histories:
        return None
    common = sorted(set.intersection(*(set(history) for history in histories)))
    summaries = [s for x in common if (s := summarize(h[x] for h in histories)) is not None]
    if not summaries:
        return None
    mean = tuple(summary.mean for summary in summaries)
    final = row.loss.mean if row.loss else mean[-1]
    sd = tuple(summary.sd or 0.0 for summary in summaries)
    return Curve(row, tuple(common), mean, sd, final, _label(row, final))


def spread(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ascending positions as little as needed to lie `gap` apart within [low, high].

    Least squares under the spacing: pool adjacent violators on the positions less i * gap.
    """
    gap = min(gap, (high - low) / max(1, len(targets) - 1))
    pools: list[list[float]] = []
    for i, target in enumerate(targets):
        pools.append([target - i * gap])
        while len(pools) > 1 and fmean(pools[-2]) >= fmean(pools[-1]):
            last = pools.pop()
            pools[-1].extend(last)
    top = high - (len(targets) - 1) * gap
    placed = [min(max(fmean(pool), low), top) for pool in pools for _ in pool]
    return [position + i * gap for i, position in enumerate(placed)]


def focus(curves: Sequence[Curve]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The x and y limits that leave out the initial drop and hold every loss after it.

    Arms that diverged or have not finished do not stretch the limits unless there are no others.
    """
    trusted = [curve for curve in curves if curve.row.usable] or list(curves)
    end = max(curve.x[-1] for curve in curves)
    start = SKIPPED_FRACTION * end
    points = [point for c in trusted for point in zip(c.x, c.mean, c.sd, strict=True)]
    late = [point for point in points if point[0] >= start] or points
    low = min(mean - sd for _, mean, sd in late)
    high = max(mean + sd for _, mean, sd in late)
    margin = 0.04 * (high - low) or 0.05 * abs(low) or 1.0
    first = min(x for x, _, _ in late)
    return (min(start, first), end or 1.0), (low - margin, high + margin)


def _history(run: Run, scales: dict[Path, float] | None, key: str) -> dict[float, float]:
    scale = 1.0 if scales is None else scales.get(run.directory)
    if scale is None:
        return {}
    return {step * scale: loss for step, loss in read_curve(run.directory / METRICS, key).items()}


def _label(row: Row, final: float) -> str:
    outcome = next((run.outcome for run in row.runs if run.status != WAITING), WAITING)
    apart = not row.runs and row.known
    remarks = [] if row.loss else ["untuned" if apart else outcome]
    if row.is_baseline and row.arm != "baseline":
        remarks.append("baseline")
    text = f"{final:.3f}  {row.arm}" + (f" ({', '.join(remarks)})" if remarks else "")
    return wrapped(text, LONGEST_LABEL)


def _draw(
    axes: Axes, table: Table, curves: Sequence[Curve], x_label: str, label_line: float
) -> None:
    styles = line_styles(table)
    _frame(axes, table, x_label)
    x_limits, y_limits = focus(curves)
    axes.set_xlim(*x_limits)
    axes.set_ylim(*y_limits)
    shown = labelled(curves)
    for curve in (curve for curve in curves if curve not in shown):
        axes.plot(curve.x, curve.mean, color=FAINT, linewidth=0.5, zorder=2)
    for order, curve in enumerate(reversed(shown)):
        _line(axes, curve, styles[curve.row.arm], order)
    _labels(axes, shown, styles, label_line)
    if key := level_key(table):
        axes.legend(handles=key, loc="upper right", frameon=False, fontsize=9, handlelength=2.8)


def _frame(axes: Axes, table: Table, x_label: str) -> None:
    from matplotlib.ticker import FuncFormatter

    seeds = "mean over seeds, band of one sd" if table.most_seeds > 1 else "one seed per arm"
    tune = table.tune
    at = f", each arm at its own best {tune.key}" if tune and tune.chosen else ""
    axes.set_title(
        f"{table.sweep.record.name}: validation loss{at} ({seeds})", loc="left", color=INK
    )
    axes.set_xlabel(f"{x_label}, without the first {SKIPPED_FRACTION:.0%}", color=INK)
    axes.set_ylabel(f"validation loss (nats per token{_part(table)})", color=INK)
    form = si if x_label == AXES[FLOPS] else "{:,.0f}".format
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
    plain_frame(axes, "y")


def _part(table: Table) -> str:
    """Say what the curves are measured on, where that is a part of what the labels are."""
    results = [run.result for run in table.sweep.runs if run.usable]
    parts = {(found.curve_tokens, found.val_tokens) for found in results}
    return "".join(
        f"; curves on {part:,} of {whole:,} tokens, labels on all"
        for part, whole in sorted((p or 0, w or 0) for p, w in parts)
        if 0 < part < whole
    )


def _line(axes: Axes, curve: Curve, style: LineStyle, order: int) -> None:
    # Markers start at another point on each line, so that lines close together keep theirs apart.
    every = max(1, len(curve.x) // 8)
    options = style.options() if len(curve.x) > 1 else {**style.options(), "marker": "o"}
    marks = (order % every, every)
    axes.plot(curve.x, curve.mean, markevery=marks, zorder=3 + order / 1000, **options)
    if any(curve.sd):
        lower = [m - s for m, s in zip(curve.mean, curve.sd, strict=True)]
        upper = [m + s for m, s in zip(curve.mean, curve.sd, strict=True)]
        axes.fill_between(curve.x, lower, upper, color=style.color, alpha=0.13, linewidth=0)


def _labels(axes: Axes, curves: Sequence[Curve], styles: dict[str, LineStyle], line: float) -> None:
    low, high = axes.get_ylim()
    left, right = axes.get_xlim()
    shown = sorted(curves, key=lambda curve: curve.final)
    ends = [min(max(curve.mean[-1], low), high) for curve in shown]
    size = 9.0 if len(shown) <= 16 else 7.5
    places = _places(ends, [c.label.count("\n") + 1 for c in shown], line, low, high)
    for curve, end, place in zip(shown, ends, places, strict=True):
        style = styles[curve.row.arm]
        # A line that left the panel is led from its edge, one that ended early from its end.
        early = curve.x[-1] < right and low <= curve.mean[-1] <= high
        stop = max(0.0, curve.x[-1] - left) / (right - left) if early else 1.0
        at = (stop, (end - low) / (high - low))
        elbow = (0.85 * LABEL_GAP + 1, (place - low) / (high - low))
        xs, ys = zip(at, elbow, strict=True)
        look: Literal[":", "-"] = ":" if early else "-"
        axes.plot(xs, ys, look, color=style.color, lw=0.7, clip_on=False, transform=axes.transAxes)
        spot = (1 + LABEL_GAP, elbow[1])
        axes.text(*spot, curve.label, transform=axes.transAxes, va="center", size=size, color=INK)


def _places(
    ends: Sequence[float], heights: Sequence[int], line: float, low: float, high: float
) -> list[float]:
    """Where labels of so many lines are centred; a line takes that fraction of the panel."""
    gap = line * (high - low)
    targets = [
        end + gap * (place - (height - 1) / 2)
        for end, height in zip(ends, heights, strict=True)
        for place in range(height)
    ]
    placed = iter(spread(targets, gap, low, high))
    return [fmean(next(placed) for _ in range(height)) for height in heights]


def labelled(curves: Sequence[Curve]) -> list[Curve]:
    """The curves that get a colour and a label: all of them, up to `MOST_LABELS`."""
    # Of more arms than fit, a reader looks for the ends of the ranking and the baseline; the
    # others are drawn as a faint background.
    if len(curves) <= MOST_LABELS:
        return list(curves)
    half = MOST_LABELS // 2
    middle = [curve for curve in curves[half:-half] if curve.row.is_baseline]
    return [*curves[:half], *middle, *curves[-half:]]
