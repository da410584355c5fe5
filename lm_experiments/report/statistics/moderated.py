"""Moderated t tests: each arm's variance is shrunk towards the mean variance of all arms.

With three seeds a variance has two degrees of freedom, and a plain paired t test over four arms
finds almost nothing. Smyth (2004, limma) shares information between tests by a posterior
variance, ``(d0 * s0^2 + d * s^2) / (d0 + d)``. limma fits d0 to the spread of thousands of
variances. A study has a handful, which also share the noise of the baseline: the fitted d0 is
then often infinite, and false claims reach .19 where one arm is noisier than the others. So the
rule here departs from limma in five points, each of which simulation showed to be needed:

- The weight of the other arms is fixed (`SHARE`), that is, d0 = d * SHARE / (1 - SHARE).
- s0^2 is the arithmetic mean of the variances, which a noisy arm raises for all arms.
- The variance is never below the arm's own, so a noisy arm is not made to look quiet.
- An arm whose variance is far above the median (`OUTLYING`) lends nothing, and one above `ALIKE`
  keeps its own degrees of freedom: an arm that nearly diverges would hide all others.
- The degrees of freedom account for the shared baseline (Satterthwaite 1946, with the estimated
  correlation of the differences).

Simulated studies at three seeds, any false claim after Holm, and power to find an arm at four
run-sds (the sd of one run beyond what all arms of a seed share):

    ====================  =====  =====  ====
    noise                 plain  limma  here
    ====================  =====  =====  ====
    4 equal arms           .048   .061  .024
    4 arms, one at 3x      .048   .093  .030
    4 arms, one at 10x     .048   .129  .041
    4 arms, baseline 3x    .040   .066  .035
    12 equal arms          .048   .051  .013
    12 arms, one at 10x    .048   .187  .028
    power, 4 arms           .27    .79   .53
    power, 12 arms          .10    .82   .39
    ====================  =====  =====  ====

At five seeds and four arms the power is .90 plain and .96 here. An arm much noisier than the rest
makes the tests of the others weaker; it does not make them wrong. The moderated interval is not
that robust: it is too wide for the quiet arms and covers 92 % for an arm at three times the
spread (89 % at ten times). Show the interval of `plain_t`, which covers 95 % for any spreads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lm_experiments.report.statistics.contrasts import Contrast
from lm_experiments.report.statistics.estimates import Array, Estimates, mean_and_variance
from lm_experiments.rundir.study import FEWEST_SEEDS

# An arm whose variance is this many times the median lends nothing and is tested by itself: one
# that nearly diverges on some seeds would hide every difference of the others.
OUTLYING = 300.0
# Beyond this many times the median an arm keeps the degrees of freedom of its own variance.
ALIKE = 10.0
SHARE = 0.4  # Above 0.5, simulated false claims exceed .05 with one arm at ten times the spread.


def moderate(contrasts: Sequence[Contrast | None]) -> list[Contrast | None]:
    """Make `p` of contrasts with one reference that of `moderated_t`, where they allow it.

    Those that have a p must be two or more, all paired over the same seeds, three or more of
    them. Otherwise each keeps the p of its plain t test.
    """
    tested = {at: found for at, found in enumerate(contrasts) if found and found.p is not None}
    paired = {found.seeds if found.paired else () for found in tested.values()}
    if len(tested) < 2 or len(paired) > 1 or len(min(paired)) < FEWEST_SEEDS:
        return list(contrasts)
    estimates = moderated_t(np.array([found.differences for found in tested.values()]))
    columns = (estimates.p(), estimates.error, estimates.degrees)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    new = {
        at: replace(found, p=p, test_error=error, test_degrees=degrees, plain_p=found.p)
        for (at, found), (p, error, degrees) in zip(tested.items(), rows, strict=True)
    }
    return [new.get(at, found) for at, found in enumerate(contrasts)]


def moderated_t(differences: Array) -> Estimates:
    """Moderated t statistics of paired differences of shape (..., arms, seeds).

    All arms are compared with the same reference over the same seeds. An arm with a NaN is
    missing; an arm whose differences are all equal, or spread out by far more than the others'
    (`OUTLYING`), lends nothing to the others. With one arm this is the plain paired t test.
    Raises `InputError` for fewer than two seeds.
    """
    mean, variance, degrees = mean_and_variance(differences)
    pooled = variance > 0  # False for NaN too.
    known = np.ma.masked_array(variance, ~pooled)
    middle = np.ma.median(known, axis=-1, keepdims=True)  # type: ignore[no-untyped-call]
    middle = np.ma.filled(middle, np.nan)
    pooled &= ~(variance > OUTLYING * middle)
    count = np.maximum(1, pooled.sum(axis=-1, keepdims=True))
    others = np.where(pooled, variance, 0.0).sum(axis=-1, keepdims=True) / count
    correlation = _correlation(np.where(pooled[..., None], differences, 0.0), others, count)
    moderated = np.maximum(variance, (1 - SHARE) * variance + SHARE * others)
    error = np.sqrt(moderated / (degrees + 1))
    alike = variance <= ALIKE * middle
    moderated_degrees = np.where(alike, _degrees(degrees, count, correlation), float(degrees))
    return Estimates(mean, error, moderated_degrees)


def _correlation(differences: Array, variance: Array, count: Array) -> Array:
    """The mean correlation between the arms' differences, 0 to 1; the baseline causes it."""
    of_sum = differences.sum(axis=-2).var(axis=-1, ddof=1)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (of_sum - count * variance) / (count * (count - 1) * variance)
    return np.asarray(np.clip(np.nan_to_num(found, nan=1.0), 0.0, 1.0), dtype=np.float64)


def _degrees(degrees: int, count: Array, correlation: Array) -> Array:
    """Satterthwaite degrees of freedom of the mix of an arm's variance and the mean variance.

    Two sample variances of differences with correlation r have correlation r^2.
    """
    mean_to_own = (1 + (count - 1) * correlation**2) / count
    relative = (1 - SHARE) ** 2 + (SHARE**2 + 2 * SHARE * (1 - SHARE)) * mean_to_own
    return np.asarray(degrees / relative, dtype=np.float64)
