"""Choosing a tuned value from trials, and how much more trials would have bought."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lm_experiments.rundir.study import half

FEWEST_TUNING_SEEDS = 3  # Fewer say nothing about how the choice would vary.


@dataclass(frozen=True)
class Best:
    """The value a grid's trials favour: its mean loss over its finite trials, None without any.

    `failed` counts its own trials without a finite loss. `edge` tells that it is the grid's
    smallest ("low") or largest ("high") value, beyond which a better one may lie.
    """

    value: float
    loss: float | None
    failed: int
    edge: Literal["low", "high"] | None


def pick_best(
    grid_losses: Mapping[float, Sequence[float | None]], grid: Sequence[float] = ()
) -> Best:
    """The value with the lowest mean loss over its tuning seeds; of equals, the smallest value.

    `grid_losses` holds each value's trial losses (nats per token), None or non-finite where the
    trial failed. A value with a failed trial loses to every value with fewer, whatever its mean.
    `grid` is what was tried, where some of it ended before. Raises `ValueError` when there is no
    trial or the values did not get equally many.
    """
    failed, loss, best = _ranked(grid_losses)[0]
    low, high = min(grid or grid_losses), max(grid or grid_losses)
    edge: Literal["low", "high"] | None = None
    if low < high:
        edge = "low" if best == low else "high" if best == high else None
    return Best(best, loss if math.isfinite(loss) else None, failed, edge)


def better_half(grid_losses: Mapping[float, Sequence[float | None]]) -> list[float]:
    """The values that go on by halving, the best first; ranked, and raising, as in `pick_best`."""
    ranked = _ranked(grid_losses)
    return [value for _, _, value in ranked[: half(len(ranked))]]


def _ranked(
    grid_losses: Mapping[float, Sequence[float | None]],
) -> list[tuple[int, float, float]]:
    """The failures, mean loss and value of each value, the best first."""
    counts = {len(losses) for losses in grid_losses.values()}
    if not counts or 0 in counts or len(counts) > 1:
        found = [f"{len(losses)} ({value:g})" for value, losses in grid_losses.items()]
        raise ValueError(
            f"The tuned values have {', '.join(found) or 'no'} trials; give every value of the "
            "grid the same number, at least one."
        )
    ranked = []
    for value, losses in grid_losses.items():
        finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
        mean = math.fsum(finite) / len(finite) if finite else math.inf
        ranked.append((len(losses) - len(finite), mean, value))
    return sorted(ranked)


def expected_best(losses: Iterable[float]) -> list[float]:
    """The expected lowest loss of k of these trials, for k = 1 up to their number.

    The exact mean over all subsets of k trials, without the replacement of Dodge et al. (2019). A
    failed trial is given as infinity, and counts until k is sure to include another.
    Raises `ValueError` when a loss is NaN.
    """
    ordered = sorted(losses)
    if any(math.isnan(loss) for loss in ordered):
        raise ValueError("A trial's loss is NaN; write float('inf') for a trial that failed.")
    n = len(ordered)
    # The i-th lowest is the best of k where the other k - 1 are among the n - i - 1 above it.
    shares = [
        [math.comb(n - i - 1, k - 1) / math.comb(n, k) for i in range(n)] for k in range(1, n + 1)
    ]
    return [
        math.fsum(share * loss for share, loss in zip(row, ordered, strict=True) if share)
        for row in shares
    ]
