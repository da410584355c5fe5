"""How far a difference depends on the validation text: the noise over its documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lm_experiments.report.collect import Run
from lm_experiments.report.statistics.compare import Comparison, RunsByArm

if TYPE_CHECKING:
    from lm_experiments.report.statistics.noise import Noise
    from lm_experiments.rundir.documents import DocumentLosses

FEWEST_DOCUMENTS = 20
ROUNDING = 1e-4  # Nats per token between a run's loss and the sum over its documents.


def with_text_noise(
    comparisons: Sequence[Comparison], runs: RunsByArm, metric: str
) -> list[Comparison]:
    """Add the noise over documents to each paired contrast of losses in nats per token.

    Left as it is where a run of either arm fails or has no losses by document, where the runs
    were measured on different text, and with fewer than `FEWEST_DOCUMENTS` documents.
    """
    return [
        replace(
            item, noise=_noise(item.contrast.seeds, runs[item.arm], runs[item.reference], metric)
        )
        if item.contrast and item.contrast.paired
        else item
        for item in comparisons
    ]


def documents_of(run: Run, metric: str) -> DocumentLosses | None:
    """The run's losses by document, where these add up to its measure; None elsewhere."""
    found, value = run.documents, run.value(metric)
    if found is None or value is None or not found.tokens.sum():
        return None
    whole = float(found.sums.sum() / found.tokens.sum())
    return found if abs(whole - value) < ROUNDING else None


def document_count(run: Run, metric: str) -> int | None:
    """How many documents the run was measured on; None where that is not known."""
    found = documents_of(run, metric)
    return None if found is None else int((found.tokens > 0).sum())


def _noise(
    seeds: Sequence[int], arm: Sequence[Run], reference: Sequence[Run], metric: str
) -> Noise | None:
    # Imported here because scipy is slow to load.
    import numpy as np

    from lm_experiments.report.statistics.noise import document_noise

    if any(run.failing for run in (*arm, *reference)):
        return None
    ours, theirs = ({run.seed: run for run in side if run.usable} for side in (arm, reference))
    pairs = [(ours[seed], theirs[seed]) for seed in seeds]
    found = [documents_of(run, metric) for pair in pairs for run in pair]
    known = [losses for losses in found if losses is not None]
    texts = {run.result.data_hash for pair in pairs for run in pair}
    if len(known) < len(found) or len(texts) > 1 or not _alike(known):
        return None
    kept = known[0].tokens > 0
    if kept.sum() < FEWEST_DOCUMENTS:
        return None
    sums = np.array([losses.sums[kept] for losses in known])
    return document_noise(sums[::2] - sums[1::2], known[0].tokens[kept])


def _alike(losses: Sequence[DocumentLosses]) -> bool:
    import numpy as np

    return all(np.array_equal(own.tokens, losses[0].tokens) for own in losses)
