"""The columns of a table: their titles and the text of each cell, the same for every writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lm_experiments.errors import InputError
from lm_experiments.report.statistics.compare import Comparison
from lm_experiments.report.statistics.contrasts import Contrast, Summary
from lm_experiments.report.statistics.to_loss import to_loss_text
from lm_experiments.report.statistics.verdicts import (
    EQUIVALENT,
    EXPLORATORY,
    MORE_SEEDS,
    TEST_WORDS,
)
from lm_experiments.report.style import DIGITS
from lm_experiments.report.table.column import Column
from lm_experiments.report.table.cost_notes import TO_LOSS, equal_in, to_baseline
from lm_experiments.report.table.fit import ANYWHERE, AT_SPACES, IMPORTANT
from lm_experiments.report.table.published import of_row, published_text, verdict_text
from lm_experiments.report.table.rows import Row, Table
from lm_experiments.rundir.diagnostics import PREFIX, STATISTICS
from lm_experiments.rundir.measures import MEASURE_TITLES, MEASURES, UNITS
from lm_experiments.rundir.results import OK

if TYPE_CHECKING:
    from lm_experiments.report.statistics.noise import Noise

NOTHING = "-"
EDGE = "^"
TESTED = (*TEST_WORDS, MORE_SEEDS, EXPLORATORY)
_LOSS_FORM = f".{DIGITS}f"
_decimals: ContextVar[int] = ContextVar("decimals", default=DIGITS)
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def columns(
    table: Table, by_axis: bool = True, titles: Sequence[str] | None = None
) -> list[Column]:
    """The columns of a table: the axes or the arm's label, then the numbers it needs.

    With `titles` these columns, in this order; `InputError` for one that there is not.
    """
    axes = [_level_column(i, axis) for i, axis in enumerate(table.axes) if by_axis]
    label = Column("arm", lambda row: row.arm, right=False, breaks=ANYWHERE)
    known = [*_losses(table), *_compared(table), *_costs(table), *_equal_cost(table)]
    if titles is None:
        return [*(axes or [label]), *(column for column in known if column.shown)]
    by_title = {column.title: column for column in known}
    return [*(axes or [label]), *(_chosen_column(title, by_title) for title in titles)]


def _chosen_column(title: str, known: Mapping[str, Column]) -> Column:
    if title in known:
        return replace(known[title], printed=True)
    statistic, _, part = title.removeprefix(PREFIX).partition("/")
    if not title.startswith(PREFIX) or statistic not in STATISTICS:
        names = [*known, *(f"{PREFIX}{name}" for name in STATISTICS)]
        raise InputError(f"--columns: {title!r} is no column; there are {', '.join(names)}.")
    return Column(title, lambda row: fixed(row.diagnostic(statistic, part), ".3g"), measured=True)


@contextmanager
def decimals(count: int) -> Iterator[None]:
    """Give losses and differences so many decimals meanwhile."""
    before = _decimals.set(count)
    try:
        yield
    finally:
        _decimals.reset(before)


def si(value: float | None) -> str:
    """Three significant digits with an SI prefix, such as 25.3M."""
    if value is None:
        return NOTHING
    for size, prefix in _PREFIXES:
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def fixed(value: float | str | None, form: str) -> str:
    """A value in a format, or the sign for nothing; losses have the decimals asked for."""
    if form.endswith(_LOSS_FORM):
        form = form.replace(_LOSS_FORM, f".{_decimals.get()}f")
    return NOTHING if value is None else format(value, form)


def p_text(value: float | None) -> str:
    """A p-value to three decimals, to four where three would blur which side of .05 it is on."""
    if value is None:
        return NOTHING
    if value < 0.001:
        return "<0.001"
    return f"{value:.4f}" if 0.0495 <= value < 0.0505 else f"{value:.3f}"


def bounds_text(low: float, high: float) -> str:
    """An interval, such as [-0.0120, +0.0310]."""
    return f"[{fixed(low, '+.4f')}, {fixed(high, '+.4f')}]"


def interval_text(contrast: Contrast | None) -> str:
    """The 95 % interval of a difference."""
    if contrast is None or contrast.low is None or contrast.high is None:
        return NOTHING
    return bounds_text(contrast.low, contrast.high)


def within_text(item: Comparison | None) -> str:
    """The interval that lies within the margin, such as "90 % [-0.0031, +0.0042]"."""
    within = item.contrast.within if item and item.contrast else None
    if item is None or within is None or item.verdict != EQUIVALENT:
        return NOTHING
    return f"{100 * within.confidence:.3g} % {bounds_text(within.low, within.high)}"


def common_setting(table: Table) -> str:
    """The setting all arms share in a tuned study, such as "lr 0.001"."""
    if table.tune is None:
        return ""
    key, name = table.tune.key, table.tune.key.rsplit(".", 1)[-1]
    values = set()
    for run in (run for row in table.rows if row.common for run in row.common.runs):
        rate = run.result.learning_rate if key == "optimizer.lr" else None
        if (value := run.setting.get(key, rate)) is not None:
            values.add(value)
    return f"{name} {values.pop():g}" if len(values) == 1 else f"the baseline's {name}"


def _losses(table: Table) -> list[Column]:
    title, several = MEASURE_TITLES[table.metric], table.most_seeds > 1
    own = f"{title} at own best" if table.tune else title
    return [
        Column(own, lambda row: _part(row.loss, "mean")),
        *_tuning(table),
        Column("sd", lambda row: _part(row.loss, "sd"), rank=12, shown=several),
        Column(
            "95 % +/-",
            lambda row: _part(row.loss, "half_width"),
            rank=5,
            printed=False,
            shown=several,
        ),
        Column(
            "n",
            lambda row: f"{len(row.usable)} of {len(row.runs)}",
            rank=IMPORTANT,
            shown=any(len(row.runs) > 1 for row in table.rows),
        ),
    ]


def _tuning(table: Table) -> list[Column]:
    if table.tune is None:
        return []
    title, at = MEASURE_TITLES[table.metric], common_setting(table)
    name = table.tune.key.rsplit(".", 1)[-1]
    return [
        Column(f"best {name}", _chosen, rank=IMPORTANT + 1),
        _if_known(Column(f"{name} sensitivity", _sensitivity, rank=2, printed=False), table),
        Column(
            f"{title} at {at}",
            lambda row: _part(row.common.loss if row.common else None, "mean"),
            rank=11,
        ),
        Column(f"difference at {at}", _common_difference, rank=9, printed=False),
    ]


def _compared(table: Table) -> list[Column]:
    to_baseline = {pair[1] for pair in table.plan.pairs} <= {table.baseline}
    return [
        Column("vs baseline" if to_baseline else "difference", _difference),
        Column(
            "against",
            lambda row: _part(row.comparison, "reference", ""),
            right=False,
            breaks=ANYWHERE,
            shown=not to_baseline,
        ),
        Column(
            "95 % interval",
            lambda row: interval_text(row.difference),
            breaks=AT_SPACES,
            rank=IMPORTANT + 2,
            shown=table.most_seeds > 1,
        ),
        *_text_noise(table),
        _p_column("p (Holm)", "adjusted_p", table, rank=8),
        _p_column("plain p (Holm)", "plain_adjusted_p", table, rank=1, printed=False),
        _if_known(
            Column(
                "equivalence interval",
                lambda row: within_text(row.comparison),
                breaks=AT_SPACES,
                rank=13,
            ),
            table,
        ),
        Column(
            "verdict",
            lambda row: _part(row.comparison, "verdict", ""),
            right=False,
            breaks=AT_SPACES,
            shown=_judged(table),
        ),
        *_published(table),
    ]


def _published(table: Table) -> list[Column]:
    """What papers say of the same contrast, and whether it holds at this scale."""
    there = bool(table.published)
    return [
        Column(
            "published",
            lambda row: published_text(of_row(table, row)) or NOTHING,
            right=False,
            breaks=AT_SPACES,
            rank=IMPORTANT + 3,
            shown=there,
        ),
        Column(
            "holds?",
            lambda row: verdict_text(of_row(table, row)) or NOTHING,
            right=False,
            breaks=AT_SPACES,
            rank=IMPORTANT + 4,
            shown=there,
        ),
    ]


def _text_noise(table: Table) -> list[Column]:
    """Where a difference's error comes from, and its interval for another text."""
    columns = (
        Column("se seeds", _error("seed_error"), rank=1, printed=False),
        Column("se docs", _error("document_error"), rank=1, printed=False),
        Column("interval, new text", _new_text, breaks=AT_SPACES, rank=2, printed=False),
    )
    # With one seed there is nothing to say over seeds.
    return [_if_known(column, table) for column in columns]


def _error(name: str) -> Callable[[Row], str]:
    return lambda row: fixed(getattr(_noise(row), name, None), ".4f")


def _new_text(row: Row) -> str:
    found = _noise(row)
    return bounds_text(found.low, found.high) if found and found.across_seeds else NOTHING


def _noise(row: Row) -> Noise | None:
    return row.comparison.noise if row.comparison else None


def _costs(table: Table) -> list[Column]:
    by_bytes = UNITS[table.metric] == MEASURES["bits_per_byte"].unit
    other = table.other_metric
    judged = _judged(table)
    rates = {row.first("learning_rate") for row in table.rows} - {None}
    return [
        Column(
            MEASURE_TITLES[other],
            partial(_mean, other),
            rank=4,
            printed=by_bytes,
            # A task has no bytes.
            shown=not table.scored or any(row.mean(other) is not None for row in table.rows),
        ),
        _if_known(Column("val loss of average", partial(_mean, "average_val_loss"), rank=4), table),
        *_scores(table),
        Column(
            "learning rate",
            lambda row: fixed(row.first("learning_rate"), ".3g"),
            rank=7,
            shown=not table.tune and len(rates) > 1,
        ),
        Column("parameters", lambda row: fixed(row.first("parameters"), ",.0f"), rank=6),
        Column(
            "non-embedding",
            lambda row: fixed(row.first("non_embedding"), ",.0f"),
            rank=1,
            printed=False,
        ),
        Column("FLOPs/token", lambda row: si(row.first("flops_per_token")), rank=3),
        Column(
            "tokens/s",
            lambda row: fixed(row.mean("tokens_per_second"), ",.0f"),
            rank=2,
            printed=False,
            measured=True,
        ),
        Column(
            "outcome",
            lambda row: row.outcome,
            right=False,
            breaks=ANYWHERE,
            # Where there is a verdict, it tells of failures too.
            rank=10 if judged else 0,
            printed=not judged and any(row.outcome != OK for row in table.rows),
        ),
    ]


def _equal_cost(table: Table) -> list[Column]:
    """What an arm is equal in to its reference, and what it takes to the baseline's loss."""
    to_loss = [
        Column(f"{said} to baseline", _to_loss(table, against), printed=False, shown=False)
        for against, said in TO_LOSS.items()
    ]
    same = Column("equal", lambda row: ", ".join(equal_in(table, row)) or NOTHING, shown=False)
    return [replace(same, right=False, breaks=AT_SPACES), *to_loss]


def _to_loss(table: Table, against: str) -> Callable[[Row], str]:
    return lambda row: to_loss_text(to_baseline(table, row, against)) or NOTHING


def _scores(table: Table) -> list[Column]:
    """What synthetic tasks are scored by beside what they are compared by, where they are."""
    if not table.scored:
        return []
    scores = [
        Column(MEASURE_TITLES[name], partial(_mean, name), rank=5)
        for name in table.scored
        if name != table.metric
    ]
    return [*scores, Column("left chance", _left_chance, rank=6)]


def _mean(name: str, row: Row) -> str:
    return fixed(row.mean(name), ".4f")


def _left_chance(row: Row) -> str:
    known = [run.left_chance for run in row.usable if run.left_chance is not None]
    return f"{sum(known)} of {len(known)}" if known else NOTHING


def _p_column(title: str, name: str, table: Table, rank: int, printed: bool = True) -> Column:
    """The p that verdicts rest on; one of the survivors alone would mislead."""

    def _text(row: Row) -> str:
        tested = row.comparison is not None and row.comparison.verdict in TESTED
        return p_text(getattr(row.difference, name) if tested else None)

    return _if_known(Column(title, _text, rank=rank, printed=printed), table)


def _if_known(column: Column, table: Table) -> Column:
    """The column, shown where a row has something in it."""
    return replace(column, shown=any(column.text(row) != NOTHING for row in table.rows))


def _part(item: Summary | Comparison | Contrast | None, name: str, form: str = ".4f") -> str:
    return fixed(None if item is None else getattr(item, name), form)


def _chosen(row: Row) -> str:
    edge = EDGE if row.chosen and row.chosen.edge else ""
    return f"{row.chosen.value:g}{edge}" if row.chosen else NOTHING


def _sensitivity(row: Row) -> str:
    return fixed(row.tuned.sensitivity if row.tuned else None, ".4f")


def _difference(row: Row) -> str:
    if row.is_baseline and row.comparison is None:
        return "(baseline)"
    return _part(row.difference, "mean", "+.4f")


def _common_difference(row: Row) -> str:
    found = row.common.comparisons[0].contrast if row.common and row.common.comparisons else None
    return _part(found, "mean", "+.4f")


def _level_column(index: int, axis: str) -> Column:
    return Column(axis, lambda row: row.levels[index], right=False, breaks=ANYWHERE)


def _judged(table: Table) -> bool:
    # With one seed everywhere the sentence under the table says it once for all.
    return bool(table.comparisons) and (table.sweep.study is not None or table.most_seeds > 1)
