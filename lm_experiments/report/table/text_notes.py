"""The sentences on how far differences depend on the text they are measured on."""

from __future__ import annotations

from lm_experiments.report.statistics.compare import Comparison
from lm_experiments.report.statistics.text_noise import FEWEST_DOCUMENTS, document_count
from lm_experiments.report.statistics.verdicts import BETTER, WORSE
from lm_experiments.report.table.rows import Table
from lm_experiments.report.table.warnings import listed
from lm_experiments.rundir.words import counted


def text_notes(table: Table) -> list[str]:
    """How to read the noise over documents, and which verdicts hold for this text alone."""
    counts = {item.noise.documents for item in table.comparisons if item.noise}
    if not counts:
        return _too_few(table)
    documents = " or ".join(map(str, sorted(counts)))
    tuning = ", without the noise of tuning" if table.tune else ""
    lines = [
        "se seeds and se docs are standard errors of the difference, over seeds and over the "
        f"{documents} documents measured on; the interval for new text is for fresh "
        f"seeds and a fresh text of the same kind{tuning}."
    ]
    if bound := [item.arm for item in table.comparisons if _bound_to_text(item)]:
        lines.append(
            f"For {listed(bound)} the verdict holds for the text measured on; for other text "
            "of the same kind the difference is unresolved (its interval for new text holds zero)."
        )
    return lines


def _too_few(table: Table) -> list[str]:
    found = (document_count(run, table.metric) for run in table.sweep.runs if run.usable)
    counts = sorted({count for count in found if count})
    if not table.comparisons or not counts or counts[-1] >= FEWEST_DOCUMENTS:
        return []
    has = " or ".join([*map(str, counts[:-1]), counted(counts[-1], "document")])
    return [
        f"The text measured on has {has}, "
        f"fewer than the {FEWEST_DOCUMENTS} that a reliable error over documents takes, so that "
        "error is not shown: differences are for this text."
    ]


def _bound_to_text(item: Comparison) -> bool:
    """Whether the seeds' interval leaves out zero and that for new text does not."""
    found, noise = item.contrast, item.noise
    if item.verdict not in (BETTER, WORSE) or found is None or noise is None:
        return False
    if found.low is None or found.high is None:
        return False
    return found.low * found.high > 0 >= noise.low * noise.high
