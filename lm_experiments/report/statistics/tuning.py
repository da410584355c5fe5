"""Choosing a tuned value from trials, and how much more trials would have bought."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


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


def pick_best(grid_losses: Mapping[float, Sequence[float | None]]) -> Best:
    """The value with the lowest mean loss over its tuning seeds; of equals, the smallest value.

    `grid_losses` holds each value's trial losses (nats per token), None or non-finite where the
    trial failed. A value with a failed trial loses to every value with fewer, whatever its mean.
    Raises `ValueError` when there is no trial or the values did not get equally many.
    """
    counts = {len(losses) for losses in grid_losses.values()}
    if not counts or 0 in counts or len(counts) > 1:
        raise ValueError(
            f"The tuned values have {_listed(grid_losses)} trials; give every value of the grid "
            "the same number, at least one."
        )
    means = {value: _finite(losses) for value, losses in grid_losses.items()}
    failures = {value: len(grid_losses[value]) - len(means[value]) for value in means}
    losses = {value: _mean(finite) for value, finite in means.items()}
    best = min(losses, key=lambda value: (failures[value], losses[value], value))
    loss = losses[best]
    return Best(best, loss if math.isfinite(loss) else None, failures[best], _edge(best, losses))


def expected_best(losses: Iterable[float], replacement: bool = True) -> list[float]:
    """The expected lowest loss of k trials drawn from these, for k = 1 up to their number.

    With replacement this is Dodge et al. (2019); without, the exact mean over all subsets of
    k trials. A failed trial is given as infinity, and counts until k is sure to include another.
    Raises `ValueError` when a loss is NaN.
    """
    ordered = sorted(losses)
    if any(math.isnan(loss) for loss in ordered):
        raise ValueError("A trial's loss is NaN; write float('inf') for a trial that failed.")
    n = len(ordered)
    share = _share_with_replacement if replacement else _share_without_replacement
    tails = [[share(n - i, n, k) for i in range(n + 1)] for k in range(1, n + 1)]
    return [
        math.fsum((tail[i] - tail[i + 1]) * loss for i, loss in enumerate(ordered) if tail[i])
        for tail in tails
    ]


def _share_with_replacement(rest: int, n: int, k: int) -> float:
    """The probability that k draws all come from the `rest` worst of n trials."""
    return float((rest / n) ** k)


def _share_without_replacement(rest: int, n: int, k: int) -> float:
    return math.comb(rest, k) / math.comb(n, k)


def _finite(losses: Sequence[float | None]) -> list[float]:
    return [loss for loss in losses if loss is not None and math.isfinite(loss)]


def _mean(losses: Sequence[float]) -> float:
    return math.fsum(losses) / len(losses) if losses else math.inf


def _edge(value: float, grid: Iterable[float]) -> Literal["low", "high"] | None:
    low, high = min(values := list(grid)), max(values)
    if low == high:
        return None
    return "low" if value == low else "high" if value == high else None


def _listed(grid_losses: Mapping[float, Sequence[float | None]]) -> str:
    counts = [f"{len(losses)} ({value:g})" for value, losses in grid_losses.items()]
    return ", ".join(counts) or "no"
