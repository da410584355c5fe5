"""`report.html`: a study as one page, which opens from disk and needs no network.

It answers in this order: which arm won, how sure that is, what it cost, why it happened, and
whether it can be trusted and repeated. Its numbers are those of the table it is made from.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lm_experiments.report.page import facts, figures, words
from lm_experiments.report.table.column import Column
from lm_experiments.report.table.columns import columns
from lm_experiments.report.table.notes import headline, legend, notes, run_ids
from lm_experiments.report.table.rows import Table
from lm_experiments.report.table.sections import sections
from lm_experiments.report.table.warnings import warnings
from lm_experiments.rundir.measures import zero_said

PAGE = "report.html"
_HERE = Path(__file__).parent
# A number at the beginning of a cell, such as +0.0120, 3.83M, <0.001 or [-0.01.
_NUMBER = re.compile(r"[\[<]?([+-]?\d+\.?\d*(?:e[+-]\d+)?)([kMGTPE]?)\b")
_SIZES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def page_html(table: Table, interim: str = "") -> str:
    """Return the whole page.

    `interim` says when it was made of a sweep that goes on. Such a page holds no comparison of
    arms: one is a look, which the sweep's ledger keeps.
    """
    # Imported here because a table in a terminal needs neither.
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["sort_value"] = sort_value
    # The filter `tojson` escapes what could end a script.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    style, script = (Markup((_HERE / name).read_text("utf-8")) for name in ("page.css", "page.js"))
    return environment.get_template("page.html").render(
        _content(table, interim), style=style, script=script, plotly=Markup(get_plotlyjs())
    )


def sort_value(text: str) -> str:
    """Return the number that a cell begins with, by which it is sorted; else its text.

    An interval is sorted by its lower end, "2 of 3" by its count.
    """
    found = _NUMBER.match(text.replace(",", ""))
    return text if found is None else f"{float(found[1]) * _SIZES.get(found[2], 1.0):g}"


def _content(table: Table, interim: str) -> dict[str, Any]:
    """Return all that the template shows, by the names that it has there."""
    sweep = table.sweep
    failing, all_failing = facts.failures(sweep)
    return {
        "name": sweep.record.name,
        "headline": headline(table),
        "baseline": table.baseline,
        "interim": interim,
        "looks": figures.looks(table),
        "figures": {
            "curves": figures.curves(table),
            "layers": figures.layers(table),
            **({} if interim else _drawn(table)),
        },
        **({} if interim else _compared(table)),
        "cost_titles": facts.COST_TITLES,
        "cost_rows": facts.cost_rows(table),
        "cost_sentence": facts.cost_sentence(sweep),
        "changes": facts.changes(table),
        "samples": facts.samples(table),
        "failures": failing,
        "all_failing": all_failing,
        "warnings": warnings(table),
        "checks": [] if interim else facts.checks(sweep),
        "ledger": facts.ledger_rows(sweep),
        "provenance": facts.provenance(sweep),
        "commands": facts.commands(sweep),
        "run_ids": run_ids(table),
    }


def _compared(table: Table) -> dict[str, Any]:
    """Return what compares arms with each other."""
    cautions = warnings(table)
    return {
        "answer": words.answer(table),
        "sentences": words.sentences(table),
        # The arm, then the verdict, then the rest.
        "columns": sorted(columns(table, by_axis=False), key=_place),
        "rows": table.rows,
        "legend": legend(table),
        "zero_said": zero_said(table.metric),
        "notes": [note for note in notes(table) if note not in cautions],
        "sections": sections(table),
    }


def _place(column: Column) -> int:
    return ("arm", "verdict", column.title).index(column.title)


def _drawn(table: Table) -> dict[str, Any]:
    """Return the figures that compare arms, None where there is nothing to draw."""
    return {
        "forest": figures.forest(table),
        "effects": figures.effects(table),
        "ladder": figures.ladder(table),
        "sensitivity": figures.sensitivity(table),
        "contexts": figures.contexts(table),
    }
