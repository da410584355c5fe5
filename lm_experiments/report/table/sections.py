"""The sections below the table of arms, in order."""

from __future__ import annotations

from lm_experiments.report.table.effects import effects_section
from lm_experiments.report.table.elsewhere import elsewhere_sections
from lm_experiments.report.table.ladder import ladder_section
from lm_experiments.report.table.rows import Table
from lm_experiments.report.table.section import Section


def sections(table: Table) -> list[Section]:
    """Those that have something to say of a table."""
    found = [effects_section(table), ladder_section(table), *elsewhere_sections(table)]
    return [section for section in found if section.notes]
