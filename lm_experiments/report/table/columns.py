"""The columns of a table: their titles and the text of each cell, the same for every writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lm_experiments.report.collect import Run
from lm_experiments.report.statistics.contrasts import Contrast, Summary
from lm_experiments.report.statistics.verdicts import BETTER, EQUIVALENT, UNRESOLVED, WORSE
from lm_experiments.report.table.rows import Row, Side, Table
from lm_experiments.rundir.results import OK
from lm_experiments.rundir.study import TUNED

NOTHING = "-"
EDGE = "^"
TESTED = (BETTER, WORSE, EQUIVALENT, UNRESOLVED)
LOSS_TITLES = {"val_loss": "val loss", "bits_per_byte": "bits/byte"}
UNITS = {"val_loss": "nats per token", "bits_per_byte": "bits per byte"}
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Column:
    """A title and the text of its cells.

    `wraps` lets a narrow terminal break the text; `rank` is the order in which one goes without
    the column, 0 for never; `printed` puts it on paper; `measured` says that training the same
    runs again gives other values.
    """

    title: str
    text: Callable[[Row], str]
    right: bool = True
    wraps: bool = False
    rank: int = 0
    printed: bool = True
    measured: bool = False
    shown: Callable[[Table], bool] = lambda table: True


def columns(table: Table) -> list[Column]:
    """The columns this table needs: the axes or the arm's label, then the numbers."""
    axes = [_level_column(i, axis) for i, axis in enumerate(table.axes)]
    label = Column("arm", lambda row: row.arm, right=False, wraps=True)
    known = [*_losses(table), *_compared(table), *_costs(table)]
    return [*(axes or [label]), *(column for column in known if column.shown(table))]


def si(value: float | None) -> str:
    """Three significant digits with an SI prefix, such as 25.3M."""
    if value is None:
        return NOTHING
    for size, prefix in _PREFIXES:
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def fixed(value: float | None, form: str) -> str:
    """A number in a format, or the sign for nothing."""
    return NOTHING if value is None else format(value, form)


def p_text(value: float | None) -> str:
    """A p-value to three decimals, to four where three would blur which side of .05 it is on."""
    if value is None:
        return NOTHING
    if value < 0.001:
        return "<0.001"
    return f"{value:.4f}" if 0.0495 <= value < 0.0505 else f"{value:.3f}"


def interval_text(contrast: Contrast | None) -> str:
    """The 95 % interval of a difference, such as [-0.0120, +0.0310]."""
    if contrast is None or contrast.low is None or contrast.high is None:
        return NOTHING
    return f"[{contrast.low:+.4f}, {contrast.high:+.4f}]"


def common_setting(table: Table) -> str:
    """The setting all arms share in a tuned study, such as "lr 0.001"."""
    tuning = table.sweep.study.tune if table.sweep.study else None
    if tuning is None:
        return ""
    name = tuning.key.rsplit(".", 1)[-1]
    runs = [run for row in table.rows if row.common for run in row.common.runs]
    values = {v for run in runs if (v := _setting(run, tuning.key)) is not None}
    return f"{name} {values.pop():g}" if len(values) == 1 else f"the baseline's {name}"


def _setting(run: Run, key: str) -> float | None:
    return run.setting.get(key, run.result.learning_rate if key == "optimizer.lr" else None)


def _losses(table: Table) -> list[Column]:
    title = LOSS_TITLES[table.metric]
    own = f"{title} at own best" if table.tuned else title
    found = [
        Column(own, _own_mean if table.tuned else lambda row: _part(row.loss, "mean")),
        Column("sd", lambda row: _part(row.loss, "sd"), rank=12, shown=_several_seeds),
        Column(
            "95 % +/-",
            lambda row: _part(row.loss, "half_width"),
            rank=5,
            printed=False,
            shown=_several_seeds,
        ),
        Column("n", lambda row: _n_text(row.main), shown=_several_runs),
    ]
    return [*found[:1], *_tuning(table), *found[1:]] if table.tuned else found


def _tuning(table: Table) -> list[Column]:
    study = table.sweep.study
    assert study is not None and study.tune is not None
    title, at = LOSS_TITLES[table.metric], common_setting(table)
    return [
        Column(f"best {study.tune.key.rsplit('.', 1)[-1]}", _chosen),
        Column(f"{title} at {at}", _common_mean, rank=11),
        Column(f"difference at {at}", _common_difference, rank=9, printed=False),
    ]


def _compared(table: Table) -> list[Column]:
    to_baseline = {pair[1] for pair in table.plan.pairs} <= {table.baseline}
    return [
        Column("vs baseline" if to_baseline else "difference", _difference),
        Column("against", _reference, right=False, wraps=True, shown=lambda _: not to_baseline),
        Column("95 % interval", lambda row: interval_text(row.difference), shown=_several_seeds),
        Column("p (Holm)", _adjusted_p, rank=8, shown=_tested),
        Column("p (sign flip)", _sign_flip_p, rank=6, shown=_sign_flipped),
        Column("verdict", _verdict, right=False, shown=_judged),
    ]


def _costs(table: Table) -> list[Column]:
    by_bytes = table.metric == "bits_per_byte"
    other = "val_loss" if by_bytes else "bits_per_byte"
    return [
        Column(
            LOSS_TITLES[other],
            lambda row: fixed(row.mean(other), ".4f"),
            rank=4,
            printed=by_bytes,
        ),
        Column("learning rate", _rate, rank=7, shown=_several_rates),
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
            wraps=True,
            # Where there is a verdict, it tells of failures too.
            rank=10 if _judged(table) else 0,
            printed=not _judged(table) and any(row.outcome != OK for row in table.rows),
        ),
    ]


def _part(summary: Summary | Contrast | None, name: str, form: str = ".4f") -> str:
    return fixed(None if summary is None else getattr(summary, name), form)


def _own_mean(row: Row) -> str:
    own = any(run.role == TUNED for run in row.runs)
    return _part(row.loss if own else None, "mean")


def _common_mean(row: Row) -> str:
    return _part(row.common.loss if row.common else None, "mean")


def _n_text(side: Side) -> str:
    return f"{len(side.usable)} of {len(side.runs)}"


def _chosen(row: Row) -> str:
    if row.chosen is None:
        return NOTHING
    return f"{row.chosen.value:g}{EDGE if row.chosen.edge else ''}"


def _difference(row: Row) -> str:
    if row.is_baseline and row.comparison is None:
        return "(baseline)"
    return _part(row.difference, "mean", "+.4f")


def _common_difference(row: Row) -> str:
    if row.common is None or not row.common.comparisons:
        return NOTHING
    return _part(row.common.comparisons[0].contrast, "mean", "+.4f")


def _reference(row: Row) -> str:
    return row.comparison.reference if row.comparison else NOTHING


def _adjusted_p(row: Row) -> str:
    found = _tested_contrast(row)
    return p_text(found.adjusted_p if found else None)


def _sign_flip_p(row: Row) -> str:
    found = _tested_contrast(row)
    return p_text(found.sign_flip_p if found else None)


def _tested_contrast(row: Row) -> Contrast | None:
    """The contrast whose p the verdict rests on; one of the survivors alone would mislead."""
    return row.difference if row.comparison and row.comparison.verdict in TESTED else None


def _verdict(row: Row) -> str:
    return row.comparison.verdict if row.comparison else NOTHING


def _rate(row: Row) -> str:
    return fixed(row.first("learning_rate"), ".3g")


def _level_column(index: int, axis: str) -> Column:
    return Column(axis, lambda row: row.levels[index], right=False)


def _several_seeds(table: Table) -> bool:
    return table.most_seeds > 1


def _several_runs(table: Table) -> bool:
    return any(len(row.runs) > 1 for row in table.rows)


def _several_rates(table: Table) -> bool:
    return not table.tuned and len({row.first("learning_rate") for row in table.rows} - {None}) > 1


def _tested(table: Table) -> bool:
    return any(_adjusted_p(row) != NOTHING for row in table.rows)


def _sign_flipped(table: Table) -> bool:
    return any(_sign_flip_p(row) != NOTHING for row in table.rows)


def _judged(table: Table) -> bool:
    # With one seed everywhere the sentence under the table says it once for all.
    return bool(table.comparisons) and (table.sweep.study is not None or table.most_seeds > 1)
