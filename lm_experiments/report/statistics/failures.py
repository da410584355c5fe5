"""What failed runs do to a comparison: no verdict from the means of the survivors."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from lm_experiments.errors import InputError

Key = TypeVar("Key", bound=Hashable)


def failure_verdict(
    arm: Sequence[float | None],
    reference: Sequence[float | None],
    reference_name: str = "baseline",
) -> str | None:
    """What is said instead of a comparison of means; None where neither arm failed.

    Both hold the loss of every planned run in the order of the seeds, None or not finite where
    the run failed. The reference comes first: where it fails, no arm has anything to be compared
    with, as the mean of its surviving runs would flatter it. Raises `InputError` without runs.
    """
    for name, losses in ((f"{reference_name} fails", reference), ("fails", arm)):
        if not losses:
            raise InputError("An arm has no planned runs; pass one loss, or None, for every seed.")
        if failed := sum(loss is None or not math.isfinite(loss) for loss in losses):
            return f"{name} {failed} of {len(losses)}"
    return None


def holm_with_failures(p_values: Mapping[Key, float | None]) -> dict[Key, float | None]:
    """Holm-adjusted p of every arm; a failing arm, given as None, has none.

    The failing arm counts in the family with p = 1: left out, its failure would loosen the tests
    of the other arms, and family-wise false claims would exceed the level.
    """
    # Imported here because numpy and scipy are slow to load.
    import numpy as np

    from lm_experiments.report.statistics.estimates import holm_adjusted

    tested = np.array([1.0 if p is None else p for p in p_values.values()])
    adjusted = holm_adjusted(tested)
    return {
        key: None if p is None else float(new)
        for (key, p), new in zip(p_values.items(), adjusted, strict=True)
    }
