"""The noise of simulated studies, in units of the sd of one quiet run."""

from __future__ import annotations

import numpy as np

from lm_experiments.report.statistics.estimates import Array

OUTLIER = 5.0  # One seed in ten ends .05 nats higher, with a run sd of .01.
SPREADS = {
    "equal": (),
    "one arm at 3x": ((1, 3.0),),
    "one arm at 10x": ((1, 10.0),),
    "one arm at 20x": ((1, 20.0),),
    "baseline at 3x": ((0, 3.0),),
    "spreads 1 to 10": ((0, 2.0), (2, 2.0), (3, 5.0), (4, 10.0)),
    "skewed": (),
    "one skewed arm": (),
}


def differences(kind: str, studies: int, arms: int, seeds: int, seed: int = 7) -> Array:
    """Paired differences to the baseline without any true effect, (studies, arms, seeds)."""
    generator = np.random.default_rng(seed)
    runs = generator.normal(size=(studies, arms + 1, seeds))
    for arm, spread in SPREADS[kind]:
        if arm <= arms:
            runs[:, arm] *= spread
    outliers = OUTLIER * (generator.random(runs.shape) < 0.1)
    if kind == "one skewed arm":
        outliers[:, [at for at in range(arms + 1) if at != 1]] = 0.0
    if "skewed" in kind:
        # Centred, as a rare outlier shifts the mean of the one skewed arm.
        runs += outliers - outliers.any(axis=(0, 2))[:, None] * 0.1 * OUTLIER
    return runs[:, 1:] - runs[:, :1]
