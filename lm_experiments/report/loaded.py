"""A sweep as an object: its table, pictures and data frames, which a notebook shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from lm_experiments.errors import InputError
from lm_experiments.report.collect import Sweep, collect
from lm_experiments.report.frame import curve_frame, run_frame
from lm_experiments.report.look import keep_look
from lm_experiments.report.merge import merge
from lm_experiments.report.style import Style
from lm_experiments.report.table.column import Column
from lm_experiments.report.table.markdown import markdown, written_columns
from lm_experiments.report.table.notes import headline, legend, notes
from lm_experiments.report.table.rows import Table, build_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class ShownTable:
    """A table as its readers see it: `str` is its Markdown, and a notebook shows it as HTML.

    Attributes:
        table: the numbers.
        columns: the titles of the columns that were asked for; None for the usual ones.
    """

    table: Table
    columns: tuple[str, ...] | None = None

    @property
    def rows(self) -> list[dict[str, str]]:
        """The text of every cell by the title of its column, a dictionary for each arm."""
        chosen = written_columns(self.table, self.columns)
        return [{column.title: column.text(row) for column in chosen} for row in self.table.rows]

    def __str__(self) -> str:
        return markdown(self.table, titles=self.columns)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        chosen = written_columns(self.table, self.columns)
        title = f"{self.table.sweep.record.name}: {headline(self.table)}"
        lines = [
            f"<p>{escape(title)}</p><table>",
            _html_row("th", chosen, [column.title for column in chosen]),
            *(_html_row("td", chosen, [c.text(row) for c in chosen]) for row in self.table.rows),
            f"</table><p>{escape(legend(self.table))}</p><ul>",
            *(f"<li>{escape(note)}</li>" for note in notes(self.table)),
            "</ul>",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, repr=False, eq=False)
class LoadedSweep:
    """What the folders of one or more sweeps held when they were loaded.

    Pictures are matplotlib figures that do not depend on pyplot. The first table, forest, ladder or
    effects that is asked for is a look: the ledger of each folder keeps it. Curves, tuning and data
    frames compare no arms and are none.

    Attributes:
        sweep: the runs; of several folders those of all, see `merge.merge`.
        baseline: the arm that others are compared with; None for the study's, or the first.
        allow_mixed: whether runs that do not belong in one table get a warning, not an error.
    """

    sweep: Sweep
    baseline: str | None = None
    allow_mixed: bool = False
    # The table, once the ledger keeps that it was shown.
    _looks: list[Table] = field(default_factory=list, init=False)

    def frame(self, curves: bool = False) -> DataFrame:
        """The runs as a data frame, see `frame.run_frame`; with `curves` all logged values."""
        return curve_frame(self.sweep) if curves else run_frame(self.sweep)

    def table(self, *columns: str) -> ShownTable:
        """The table, with the columns of these titles or the usual ones.

        Raises `InputError` as `write_report` does, and for a title that there is not.
        """
        found = ShownTable(self._table, columns or None)
        # A title that is wrong shows nothing.
        written_columns(found.table, found.columns)
        self._look()
        return found

    def forest(self) -> Figure:
        """Every contrast with its 95 % interval; `InputError` where none has one."""
        from lm_experiments.report.pictures.forest import draw_forest

        needs = "a forest needs two arms that share two seeds"
        return self._drawn(draw_forest(self._table), needs, compares=True)

    def ladder(self) -> Figure:
        """Differences against training compute; `InputError` without a ladder that has trained.

        Their numbers, slopes and verdicts are those of ``table().table.ladder``.
        """
        from lm_experiments.report.pictures.ladder import draw_ladder

        needs = "a ladder needs a study with ladder:, and a run of every arm at each rung"
        return self._drawn(draw_ladder(self._table), needs, compares=True)

    def effects(self) -> Figure:
        """Main effects and interactions of a grid; `InputError` where the arms form none."""
        from lm_experiments.report.pictures.effects import draw_effects

        needs = "effects need a full grid of two axes or more, with two seeds"
        return self._drawn(draw_effects(self._table), needs, compares=True)

    def curves(self, against: str | None = None) -> Figure:
        """Validation loss of every arm against steps, tokens, flops or seconds.

        None takes tokens where steps differ in size, else steps. Raises `InputError` without any.
        """
        from lm_experiments.report.pictures.curves import draw_curves

        found = draw_curves(self._table, against=Style(against=against).against)
        known = f" and whose {against} are known" if against else ""
        return self._drawn(found, f"curves need a run that was validated{known}")

    def by_value(self) -> Figure:
        """Loss by a swept number; `InputError` where no axis has five numbers."""
        from lm_experiments.report.pictures.by_value import draw_by_value

        needs = "the loss by value needs an axis of five numbers or more"
        return self._drawn(draw_by_value(self._table), needs)

    def sensitivity(self) -> Figure:
        """Loss by the tuned key; `InputError` without trials that have ended."""
        from lm_experiments.report.pictures.sensitivity import draw_sensitivity

        needs = "sensitivity needs a study with tune:, and trials that have ended"
        return self._drawn(draw_sensitivity(self._table), needs)

    def __repr__(self) -> str:
        arms, runs = len(self.sweep.arms), self.sweep.runs
        state = f"{sum(run.finished for run in runs)} of {len(runs)} runs finished"
        return f"LoadedSweep({self.sweep.record.name}: {arms} arms, {state})"

    @cached_property
    def _table(self) -> Table:
        return build_table(self.sweep, self.baseline, self.allow_mixed)

    def _look(self) -> None:
        if not self._looks:
            keep_look(self._table)
            self._looks.append(self._table)

    def _drawn(self, figure: Figure | None, needs: str, compares: bool = False) -> Figure:
        if figure is None:
            raise InputError(f"{self.sweep.record.name}: nothing to draw; {needs}.")
        if compares:
            self._look()
        return figure


def load(
    sweep_dir: str | Path,
    *more: str | Path,
    baseline: str | None = None,
    allow_mixed: bool = False,
) -> LoadedSweep:
    """Read the folder of a sweep, or several as one sweep, see `merge.merge`.

    `baseline` and `allow_mixed` are those of `write_report`. Raises `InputError` for a path
    without runs and a damaged file, and of several folders as `merge` does.
    """
    sweeps = [collect(folder) for folder in (sweep_dir, *more)]
    return LoadedSweep(merge(sweeps, Path()) if more else sweeps[0], baseline, allow_mixed)


def _html_row(tag: str, columns: Sequence[Column], texts: Sequence[str]) -> str:
    cells = [
        f'<{tag} style="text-align: {"right" if column.right else "left"}">{escape(text)}</{tag}>'
        for column, text in zip(columns, texts, strict=True)
    ]
    return f"<tr>{''.join(cells)}</tr>"
