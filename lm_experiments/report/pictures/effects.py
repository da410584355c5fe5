"""Draw main effects and interactions of a grid with their 95 % intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lm_experiments.report.pictures.forest import COLORS
from lm_experiments.report.pictures.intervals import Bar, interval_panel, shown_of
from lm_experiments.report.statistics.verdicts import BETTER, WORSE
from lm_experiments.report.table.columns import p_text
from lm_experiments.report.table.effects import effect_label, resolved, shown_effects
from lm_experiments.report.table.rows import Table
from lm_experiments.rundir.measures import UNITS, sign_of, zero_said

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lm_experiments.report.statistics.factorial import Effect


def draw_effects(table: Table, path: Path | None = None) -> Figure | None:
    """Draw the picture, into a file with `path`; None where the arms form no grid.

    Main effects are dots, interactions diamonds; coloured where the adjusted p is below .05.
    """
    if table.effects is None:
        return None
    bars = [_bar(effect, sign_of(table.metric)) for effect in shown_effects(table.effects)]
    what = f"main effects (dots) and interactions (diamonds){shown_of(len(bars))}"
    title = f"{table.sweep.record.name}: {what}"
    x_label = f"effect ({UNITS[table.metric]}), 95 % interval; {zero_said(table.metric)}"
    with interval_panel(path, title, x_label, bars) as (figure, _):
        return figure


def _bar(effect: Effect, sign: int) -> Bar:
    word = f"p {p_text(effect.adjusted_p)}".replace("p <", "p < ")
    color = COLORS[BETTER if sign * effect.mean < 0 else WORSE] if resolved(effect) else None
    mark = "o" if len(effect.factors) == 1 else "D"
    return Bar(effect_label(effect), effect, word, color, mark)
