"""Simulated ladders: paired differences by rung and seed, as a table's contrasts have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm_experiments.report.statistics.contrasts import Contrast, contrast
from lm_experiments.report.statistics.estimates import Array
from lm_experiments.report.statistics.trend import judged, slope_weights, trend

# Rungs of four times the compute each.
COMPUTE = (1e12, 4e12, 1.6e13)
OUTLIER = 5.0


@dataclass(frozen=True)
class Noise:
    """The sd of a difference at each rung, the correlation of a seed's rungs, rare outliers."""

    sd: tuple[float, ...] = (0.004, 0.004, 0.004)
    correlation: float = 0.0
    outliers: float = 0.0


@dataclass(frozen=True)
class Rates:
    """Of many ladders: the share of slopes within their interval, and of each verdict."""

    coverage: float
    verdicts: dict[str, float]
    # Ladders in which one contrast or more has a verdict of change.
    changes: float


def rung(differences: Sequence[float]) -> Contrast:
    """The contrast of a rung with these paired differences, for seeds 0, 1, ..."""
    found = contrast(dict(enumerate(differences)), dict.fromkeys(range(len(differences)), 0.0))
    assert found is not None
    return found


def differences(effects: Sequence[float], noise: Noise, shape: tuple[int, ...]) -> Array:
    """Differences of shape (*shape, seeds, rungs), where `shape` ends in seeds."""
    generator = np.random.default_rng(5)
    own = generator.normal(size=(*shape, len(effects)))
    own += OUTLIER * ((generator.random(own.shape) < noise.outliers) - noise.outliers)
    shared = generator.normal(size=(*shape, 1))
    mixed = np.sqrt(noise.correlation) * shared + np.sqrt(1 - noise.correlation) * own
    return np.asarray(effects) + np.asarray(noise.sd) * mixed


def ladder_rates(
    effects: Sequence[float], noise: Noise, ladders: int, contrasts: int, seeds: int
) -> Rates:
    """The rates of ladders whose contrasts all have these true differences."""
    truth = float(np.dot(slope_weights(COMPUTE), effects))
    words: Counter[str] = Counter()
    covered, changes = 0, 0
    for ladder in differences(effects, noise, (ladders, contrasts, seeds)):
        rungs = [[rung(row) for row in one.T.tolist()] for one in ladder]
        found = [made for made in judged([trend(COMPUTE, one) for one in rungs]) if made]
        words.update(made.verdict for made in found)
        slopes = [made.slope for made in found]
        covered += sum((s.low or 0.0) <= truth <= (s.high or 0.0) for s in slopes)
        changes += any(made.verdict in ("shrinks", "grows", "flips") for made in found)
    total = ladders * contrasts
    shares = {word: count / total for word, count in words.items()}
    return Rates(covered / total, shares, changes / ladders)
