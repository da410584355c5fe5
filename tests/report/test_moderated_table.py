"""The p of a family with one reference: moderated, with the plain p and interval beside it."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from synthetic_runs import SweepFactory
from synthetic_studies import StudyFactory

from lm_experiments.report import Table, build_table, collect
from lm_experiments.report.statistics.contrasts import contrast
from lm_experiments.report.statistics.estimates import holm_adjusted
from lm_experiments.report.statistics.moderated import moderate, moderated_t
from lm_experiments.report.table.columns import columns, p_text
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.latex import latex
from lm_experiments.report.table.notes import MODERATED, PLAIN_INTERVALS, UNADJUSTED, notes
from lm_experiments.report.table.rows import Row

BASE = {0: 3.10, 1: 3.20, 2: 3.30}
QUIET, NOISY = (0.021, 0.020, 0.022), (0.05, -0.04, 0.02)


def table_with(sweep: SweepFactory, **arms: tuple[float, ...]) -> Table:
    """A table of arms with these differences to the baseline, over its seeds."""
    sweep.done("base", BASE)
    for arm, differences in arms.items():
        sweep.done(arm, {seed: BASE[seed] + d for seed, d in enumerate(differences)})
    return build_table(collect(sweep.plan()))


def row_of(table: Table, arm: str) -> Row:
    return next(row for row in table.rows if row.arm == arm)


def cells(table: Table, arm: str) -> dict[str, str]:
    return {column.title: column.text(row_of(table, arm)) for column in columns(table)}


def verdicts(table: Table) -> dict[str, str]:
    return {item.arm: item.verdict for item in table.comparisons}


def test_p_is_moderated_and_the_plain_test_stays_beside_it(study: StudyFactory) -> None:
    table = build_table(collect(study.whole()))
    found = [item.contrast for item in table.comparisons if item.contrast]
    differences = np.array([c.differences for c in found])
    p = moderated_t(differences).p()
    assert [c.p for c in found] == p.tolist()
    assert [c.adjusted_p for c in found] == holm_adjusted(p).tolist()
    alone = [contrast(dict(enumerate(c.differences)), dict.fromkeys(range(5), 0.0)) for c in found]
    plain = [c.p for c in alone if c and c.p is not None]
    assert [c.plain_p for c in found] == pytest.approx(plain, rel=1e-9)
    assert [c.plain_adjusted_p for c in found] == pytest.approx(
        holm_adjusted(np.array(plain)).tolist()
    )
    assert [c.low for c in found] == pytest.approx([c.low for c in alone if c])
    assert any(MODERATED in line and UNADJUSTED in line for line in notes(table))


def test_every_format_holds_both_p_and_paper_only_one(study: StudyFactory) -> None:
    table = build_table(collect(study.whole()))
    [silu] = [item.contrast for item in table.comparisons if item.arm == "silu"]
    assert silu and silu.plain_p != silu.p
    shown = cells(table, "silu")
    assert (shown["p (Holm)"], shown["plain p (Holm)"]) == (
        p_text(silu.adjusted_p),
        p_text(silu.plain_adjusted_p),
    )
    record = {r["arm"]: r for r in csv.DictReader(io.StringIO(csv_text(table)))}["silu"]
    assert [float(record[name]) for name in ("p", "p_holm", "p_plain", "p_plain_holm")] == [
        silu.p,
        silu.adjusted_p,
        silu.plain_p,
        silu.plain_adjusted_p,
    ]
    content = json.loads(json_text(table))
    assert content["rule"]["test"] == "two-sided moderated paired t over common seeds"
    statistics = next(c for c in content["contrasts"] if c["arm"] == "silu")["statistics"]
    assert (statistics["plain_p"], statistics["seeds"]) == (silu.plain_p, [0, 1, 2, 3, 4])
    assert r"plain p (Holm)" not in latex(table).partition("\\midrule")[0]


def test_an_interval_without_zero_beside_unresolved(sweep: SweepFactory) -> None:
    table = table_with(sweep, quiet=(0.013, 0.014, 0.015), wild=(0.4, -0.5, 0.3))
    quiet = row_of(table, "quiet").difference
    assert quiet and quiet.low and quiet.low > 0
    assert verdicts(table)["quiet"] == "unresolved"
    assert any(UNADJUSTED in line and PLAIN_INTERVALS in line for line in notes(table))


def test_an_interval_with_zero_beside_worse(sweep: SweepFactory) -> None:
    table = table_with(sweep, quiet=(0.050, 0.044, 0.041), wide=(0.081, 0.049, 0.030))
    wide = row_of(table, "wide").difference
    assert wide and wide.low is not None and wide.plain_adjusted_p is not None
    assert wide.low < 0 and wide.plain_adjusted_p > 0.05
    assert verdicts(table) == {"quiet": "worse", "wide": "worse"}


@pytest.mark.parametrize(
    "arms",
    [
        {"one": QUIET},
        {"one": QUIET, "two": NOISY[:2]},
        {"one": QUIET[:2], "two": NOISY[:2]},
        {"one": QUIET, "same": (0.0, 0.0, 0.0)},
    ],
)
def test_elsewhere_p_is_plain(sweep: SweepFactory, arms: dict[str, tuple[float, ...]]) -> None:
    table = table_with(sweep, **arms)
    assert not table.moderated
    assert "plain p (Holm)" not in cells(table, "one")
    assert not any("moderated" in line for line in notes(table))
    assert json.loads(json_text(table))["rule"]["test"] == "two-sided paired t over common seeds"


def test_contrasts_with_two_references_are_plain(study: StudyFactory) -> None:
    study.contrasts = [["nope", "baseline"], ["layernorm", "baseline"], ["no norm", "silu"]]
    assert not build_table(collect(study.whole())).moderated
    study.broken["no norm", 0] = {"outcome": "diverged", "val_loss": 9.0}
    study.entries.clear()
    study.root = study.root.with_name("failing")
    assert build_table(collect(study.whole())).moderated, "what is tested has one reference"


def test_a_failing_arm_lends_nothing_and_counts_in_the_family(sweep: SweepFactory) -> None:
    table_with(sweep, one=QUIET, two=NOISY)
    sweep.done("dead", {0: 3.1, 1: 3.9})
    sweep.done("dead", {2: 9.0}, outcome="diverged")
    table = build_table(collect(sweep.plan()))
    one, two, dead = (row_of(table, arm).difference for arm in ("one", "two", "dead"))
    assert one and two and dead and one.p and two.p
    p = moderated_t(np.array([one.differences, two.differences])).p().tolist()
    assert [one.p, two.p] == p
    assert (one.adjusted_p, two.adjusted_p) == pytest.approx((3 * one.p, min(1, 2 * two.p)))
    assert (dead.p, dead.plain_p, dead.plain_adjusted_p) == (None, None, None)


def test_different_seeds_of_equal_number_are_plain() -> None:
    base = dict.fromkeys(range(4), 3.0)
    first = contrast({0: 3.1, 1: 3.2, 2: 3.1}, base)
    second = contrast({1: 3.1, 2: 3.2, 3: 3.1}, base)
    assert moderate([first, second]) == [first, second]


def test_an_unfinished_study_tells_no_plain_p_either(study: StudyFactory) -> None:
    study.report()
    study.add("silu", 5, "report", exists=False)
    table = build_table(collect(study.plan()))
    assert all(c.contrast and c.contrast.plain_adjusted_p is None for c in table.comparisons)
