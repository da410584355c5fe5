"""Published claims in a table: columns, notes, the picture, and what is not testable."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from figure_contents import words
from matplotlib.figure import Figure
from rich.console import Console
from synthetic_studies import StudyFactory

from lm_experiments.report import Table, build_table, collect, write_report
from lm_experiments.report.pictures.forest import draw_forest
from lm_experiments.report.statistics.published import Finding
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.csv_table import csv_text
from lm_experiments.report.table.json_table import json_text
from lm_experiments.report.table.latex import latex
from lm_experiments.report.table.markdown import markdown
from lm_experiments.report.table.notes import notes
from lm_experiments.report.table.published import RULE, claim_notes
from lm_experiments.report.table.terminal import show_table
from lm_experiments.rundir.published import Claim, Source

GU = Source("Gu et al. 2025", "table 5", "60M", 5e9, 1, difference=0.08)
NOPE = Claim("Without positions it is worse.", "worse", ["nope", "baseline"], sources=[GU])
NORM = Claim(
    "LayerNorm is worse.",
    "worse",
    ["layernorm", "baseline"],
    range=[0.05, 0.06],
    sources=[GU],
    why="A small model.",
)
SILU = Claim("SiLU is better.", "better", ["silu", "baseline"], sources=[Source("A", "p. 3")])
ORDER = Claim(
    "An order.",
    "order",
    order={"baseline": 1.0, "layernorm": 1.0, "silu": 1.1, "nope": 1.2},
    sources=[Source("B 2020", "table 1", runs=4)],
)


def table_of(root: Path, baseline: str | None = None) -> Table:
    return build_table(collect(root), baseline)


def found_by(table: Table) -> dict[str, Finding]:
    return {found.claim.claim: found for found in table.published}


def test_every_format_has_the_claims_only_where_a_study_has_some(study: StudyFactory) -> None:
    root = study.whole()
    plain = table_of(root)
    assert not claim_notes(plain) and "published" not in json.loads(json_text(plain))
    assert "published" not in csv_text(plain).splitlines()[0]
    assert not {"published", "holds?"} & {column.title for column in columns(plain)}

    study.published = [NOPE, NORM, SILU, ORDER]
    table = table_of(study.plan())
    found = {claim: item.verdict for claim, item in found_by(table).items()}
    assert found == {
        NOPE.claim: "holds",
        NORM.claim: "does not hold",
        SILU.claim: "does not hold",
        ORDER.claim: "holds",
    }
    cells = {c.title: c.text(table.rows[3]) for c in columns(table)}
    assert (table.rows[3].arm, cells["published"], cells["holds?"]) == (
        "nope",
        "+0.08",
        "holds",
    )
    record = {row["arm"]: row for row in csv.DictReader(io.StringIO(csv_text(table)))}
    assert record["layernorm"]["published"] == "+0.05 to +0.06"
    assert record["layernorm"]["holds"] == "does not hold"
    assert record["no norm"]["holds"] == ""
    content = json.loads(json_text(table))
    assert [item["verdict"] for item in content["published"]] == list(found.values())
    assert content["published"][0]["n"] == 5
    out = io.StringIO()
    show_table(table, Console(file=out))
    for text in (out.getvalue(), markdown(table), latex(table)):
        assert "does not hold" in text and "holds?" in text and "Gu et al. 2025" in text


def test_a_claim_is_told_with_both_scales_and_the_runs_of_its_source(study: StudyFactory) -> None:
    study.published = [NOPE, SILU]
    rule, nope, silu = claim_notes(table_of(study.whole()))
    assert rule == RULE and "none refutes" in rule
    assert nope == (
        "Published: Without positions it is worse. (nope - baseline: worse by +0.08 nats/token). "
        "Gu et al. 2025 (60M, 5B tokens, 1 run): +0.08 nats/token, read in table 5. "
        "Here, with 4.21M parameters and 4.1M tokens: +0.0793 [+0.0741, +0.0845] over 5 seeds; "
        "holds at this scale."
    )
    assert "A (runs not stated): read in p. 3" in silu
    assert silu.endswith("does not hold at this scale.")


def test_a_source_that_counts_bytes_is_compared_in_its_own_unit(study: StudyFactory) -> None:
    # The synthetic runs have half as many bits per byte as nats per token.
    study.published = [replace(NOPE, unit="bits/byte", range=[0.03, 0.05])]
    table = table_of(study.whole())
    [found] = table.published
    assert (found.verdict, found.span) == ("holds", (0.06, 0.1))
    assert found.mean == pytest.approx(0.0793 / 2, abs=1e-4)
    assert "+0.0397 [+0.0371, +0.0423] bits/byte" in claim_notes(table)[1]


def test_what_cannot_be_tested_says_why(study: StudyFactory) -> None:
    study.margin = None
    study.published = [
        replace(NOPE, claim="missing", contrast=["rope", "baseline"]),
        replace(NOPE, claim="pair", contrast=["nope", "silu"]),
        replace(NORM, claim="margin", expect="equivalent", range=None),
        replace(NOPE, claim="failed", contrast=["no norm", "baseline"]),
    ]
    study.broken["no norm", 0] = {"outcome": "diverged", "val_loss": 9.0}
    reasons = {claim: item.reason for claim, item in found_by(table_of(study.whole())).items()}
    assert reasons == {
        "missing": "no arm 'rope' was trained",
        "pair": "nope against silu is not among the contrasts of this table",
        "margin": "the study declares no margin",
        "failed": "fails 1 of 5",
    }
    chosen = found_by(table_of(study.root, "silu"))["failed"]
    assert chosen.reason.startswith("no norm against baseline is not among the contrasts")


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_too_few_seeds_give_no_verdict(study: StudyFactory, seeds: tuple[int, ...]) -> None:
    study.seeds, study.published = seeds, [NOPE, ORDER]
    reasons = [item.reason for item in table_of(study.whole()).published]
    assert reasons == [f"exploratory, n = {len(seeds)}", "fewer than 3 seeds that all arms have"]


def test_an_unfinished_study_holds_no_claim(study: StudyFactory) -> None:
    study.published = [NOPE, ORDER]
    study.report()
    study.add("silu", 9, "report", exists=False)
    found = table_of(study.plan()).published
    assert {item.reason for item in found} == {"the study is unfinished"}


def test_a_claim_of_failures_counts_runs_and_no_crashes(study: StudyFactory) -> None:
    study.published = [Claim("It fails.", "fails", ["no norm", "baseline"], sources=[GU_FAILS])]
    nan = {"outcome": "non-finite", "val_loss": None}
    study.broken |= {("no norm", seed): nan for seed in study.seeds}
    [found] = table_of(study.whole()).published
    assert (found.verdict, found.n) == ("holds", 5)
    assert found.here == "fails in 5 of 5 runs, baseline in 0 of 5"

    other = replace_root(study, "crashed")
    other.broken = {("no norm", 1): {"status": "failed", "outcome": None, "val_loss": None}}
    [crashed] = table_of(other.whole()).published
    assert crashed.verdict == "not testable here" and "crashed" in crashed.reason

    healthy = replace_root(study, "healthy")
    healthy.broken = {}
    [found] = table_of(healthy.whole()).published
    assert found.verdict == "does not hold"


GU_FAILS = Source("Gu et al. 2025", "table 5", "60M", 5e9, 1, value="NaN in 1 of 1")


def replace_root(study: StudyFactory, name: str) -> StudyFactory:
    return replace(study, root=study.root.with_name(name), entries=[])


def test_a_claim_changed_after_p_values_were_shown_is_exploratory(study: StudyFactory) -> None:
    study.published = [NOPE]
    write_report(study.whole())
    assert table_of(study.root).published[0].verdict == "holds"
    # Where it was read is no part of the rule; the range is.
    moved = replace(NOPE, sources=[replace(GU, read="table 6")])
    study.published = [moved, replace(NOPE, claim="changed", range=[0.02, 0.09])]
    found = found_by(table_of(study.plan()))
    assert found[NOPE.claim].verdict == "holds"
    assert found["changed"].verdict == "not testable here"
    assert "after p-values had been shown" in found["changed"].reason
    # The contrast itself was declared in time.
    assert not table_of(study.root).plan.exploratory


def test_the_forest_has_the_published_range_as_an_empty_bar(
    study: StudyFactory, tmp_path: Path, figures: list[Figure]
) -> None:
    study.published = [replace(NOPE, range=[0.3, 0.4])]
    table = table_of(study.whole())
    assert draw_forest(table, tmp_path / "forest.png")
    [axes] = figures[0].axes
    bars = [line for line in axes.lines if len(line.get_xdata()) == 5]
    assert [(min(bar.get_xdata()), max(bar.get_xdata())) for bar in bars] == [(0.3, 0.4)]
    assert axes.get_xlim()[1] > 0.4
    assert any("empty bars: published ranges" in text for text in words(figures[0]))
    study.published = []
    assert draw_forest(table_of(study.plan()), tmp_path / "forest.png")
    assert not any("empty bars" in text for text in words(figures[1]))


def test_the_rule_and_the_claims_are_among_the_notes(study: StudyFactory) -> None:
    study.published = [NOPE]
    table = table_of(study.whole())
    assert [line for line in notes(table) if line in claim_notes(table)] == claim_notes(table)
