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


def with_text_noise(comparisons: Sequence[Comparison], runs: RunsByArm) -> list[Comparison]:
    """Add the noise over documents to each paired contrast of losses in nats per token.

    Left as it is where a run of either arm fails or has no losses by document, where the runs
    were validated on different text, and with fewer than `FEWEST_DOCUMENTS` documents.
    """
    return [
        replace(item, noise=_noise(item.contrast.seeds, runs[item.arm], runs[item.reference]))
        if item.contrast and item.contrast.paired
        else item
        for item in comparisons
    ]


def document_count(run: Run) -> int | None:
    """How many documents the run was validated on; None where that is not known."""
    return int((run.documents.tokens > 0).sum()) if run.documents else None


def _noise(seeds: Sequence[int], arm: Sequence[Run], reference: Sequence[Run]) -> Noise | None:
    # Imported here because scipy is slow to load.
    import numpy as np

    from lm_experiments.report.statistics.noise import document_noise

    if any(run.failing for run in (*arm, *reference)):
        return None
    ours, theirs = ({run.seed: run for run in side if run.usable} for side in (arm, reference))
    pairs = [(ours[seed], theirs[seed]) for seed in seeds]
    found = [run.documents for pair in pairs for run in pair]
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
