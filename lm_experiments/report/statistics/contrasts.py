"""Means and paired contrasts over seeds, with Student-t intervals and tests.

Nothing here reads files: losses go in, frozen records of statistics come out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

CONFIDENCE = 0.95
SIGN_FLIP_SEEDS = range(6, 21)  # Below 6 no p under .05 exists; above 20 there are too many signs.


@dataclass(frozen=True)
class Summary:
    """The mean of n values, in their unit; `sd` and `half_width` are None when n is 1."""

    mean: float
    sd: float | None
    n: int
    half_width: float | None


@dataclass(frozen=True)
class Contrast:
    """An arm's loss minus its reference's, in nats per token; below zero the arm is better.

    `paired` says how it was made. Paired: over the n seeds both arms have, whose differences
    are kept in `differences`; this needs no equal variances. Not paired (Welch): from two
    separate means, where n is the smaller of the two counts and `sd` is that of a difference
    between one run of each arm. `low` and `high` bound the 95 % interval and `p` is two-sided.
    `equivalent_p` is the larger p of two one-sided tests against the margin (TOST). What takes
    two values or more is None with fewer, and `adjusted_p` is None until `adjust` sets it.
    """

    mean: float
    sd: float | None
    n: int
    half_width: float | None
    p: float | None
    equivalent_p: float | None
    sign_flip_p: float | None
    paired: bool
    differences: tuple[float, ...] = ()
    adjusted_p: float | None = None

    @property
    def low(self) -> float | None:
        """The lower end of the 95 % interval."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """The upper end of the 95 % interval."""
        return None if self.half_width is None else self.mean + self.half_width

    @property
    def identical(self) -> bool:
        """Whether the arms share seeds and have exactly the same loss on each of them."""
        return bool(self.differences) and not any(self.differences)


@dataclass(frozen=True)
class _Estimate:
    """A mean difference with its standard error and degrees of freedom."""

    mean: float
    error: float
    degrees: float

    def at_least(self, bound: float) -> float:
        """The one-sided p of the mean against a true value of `bound` or less."""
        gap = self.mean - bound
        if self.error == 0:
            return 0.0 if gap > 0 else 1.0
        return _t_tail(gap / self.error, self.degrees)

    def two_sided(self) -> float:
        """The two-sided p against no difference."""
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return 2 * _t_tail(abs(self.mean) / self.error, self.degrees)

    def within(self, margin: float) -> float:
        """The p of two one-sided t tests against -margin and +margin (Schuirmann 1987)."""
        mirrored = replace(self, mean=-self.mean)
        return max(self.at_least(-margin), mirrored.at_least(-margin))


def summarize(values: Iterable[float]) -> Summary | None:
    """Mean, standard deviation (ddof 1) and 95 % t half-width; None when there are no values."""
    numbers = list(values)
    n = len(numbers)
    if n == 0:
        return None
    # The rounded mean of equal numbers can miss them by a bit, and their sd would not be zero.
    mean = numbers[0] if len(set(numbers)) == 1 else math.fsum(numbers) / n
    if n == 1:
        return Summary(mean, None, 1, None)
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in numbers) / (n - 1))
    return Summary(mean, sd, n, t_quantile(n - 1) * sd / math.sqrt(n))


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Summary | None:
    """Summarise `values - baseline` over the seeds both have; None when they share no seed."""
    return summarize(_differences(values, baseline))


def contrast(
    values: Mapping[int, float], reference: Mapping[int, float], margin: float | None = None
) -> Contrast | None:
    """Compare two arms, each given as loss by seed; None when either has no loss at all.

    Paired over common seeds. Where fewer than two are shared, the Welch interval is used if
    both arms have two seeds, or if none is shared. `margin` (nats per token, above zero) is the
    largest difference that does not matter, and needed for `equivalent_p`.
    Raises `ValueError` for a loss that is not finite and for a margin that is not above zero.
    """
    _check_losses(values)
    _check_losses(reference)
    if margin is not None and not 0 < margin < math.inf:
        raise ValueError(
            f"The equivalence margin is {margin!r}; write a finite number of nats per token above "
            "zero, such as 0.01, or leave it out."
        )
    if not values or not reference:
        return None
    differences = _differences(values, reference)
    both_repeat = min(len(values), len(reference)) > 1
    if not differences or (len(differences) == 1 and both_repeat):
        return _welch(list(values.values()), list(reference.values()), margin)
    return _paired(differences, margin)


def adjust(contrasts: Sequence[Contrast | None]) -> list[Contrast | None]:
    """Set `adjusted_p` (Holm) of one study's declared contrasts, in their order.

    The family is all of them: a contrast without a p, of an arm that failed or has one seed,
    still counts, so that a failing arm does not make the others easier to believe.
    """
    p_values = [None if item is None else item.p for item in contrasts]
    adjusted = holm([1.0 if p is None else p for p in p_values])
    return [
        item if item is None or item.p is None else replace(item, adjusted_p=new)
        for item, new in zip(contrasts, adjusted, strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values (Holm 1979), at most 1, in the order given.

    Raises `ValueError` for a value outside 0 to 1.
    """
    for p in p_values:
        if not 0 <= p <= 1:
            raise ValueError(f"{p!r} is not a p-value; give numbers from 0 to 1.")
    count = len(p_values)
    order = sorted(range(count), key=p_values.__getitem__)
    scaled = (min(1.0, (count - rank) * p_values[at]) for rank, at in enumerate(order))
    by_position = dict(zip(order, accumulate(scaled, max), strict=True))
    return [by_position[at] for at in range(count)]


def sign_flip_p(differences: Sequence[float]) -> float | None:
    """Exact two-sided p of the mean under all 2^n sign patterns; None unless n is 6 to 20."""
    if len(differences) not in SIGN_FLIP_SEEDS:
        return None
    # Negating every sign leaves |sum| alone, so the first sign can stay as it is.
    sums = np.array([differences[0]], dtype=np.float64)
    for difference in differences[1:]:
        sums = np.concatenate([sums + difference, sums - difference])
    # Patterns that tie in exact arithmetic may differ in the last bits.
    slack = 1e-12 * math.fsum(abs(x) for x in differences)
    return float(np.mean(np.abs(sums) >= abs(math.fsum(differences)) - slack))


def t_quantile(degrees: float) -> float:
    """The two-sided 95 % point of Student's t with this many degrees of freedom."""
    # Imported here because scipy is slow to load.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2))


def _t_tail(t: float, degrees: float) -> float:
    from scipy.special import stdtr

    return float(stdtr(degrees, -t))


def _check_losses(losses: Mapping[int, float]) -> None:
    for seed, loss in losses.items():
        if not math.isfinite(loss):
            raise ValueError(
                f"The loss of seed {seed} is {loss!r}; pass finite losses only, and count a run "
                "without one among its arm's failures."
            )


def _differences(values: Mapping[int, float], reference: Mapping[int, float]) -> tuple[float, ...]:
    common = sorted(values.keys() & reference.keys())
    return tuple(values[seed] - reference[seed] for seed in common)


def _paired(differences: tuple[float, ...], margin: float | None) -> Contrast:
    summary = summarize(differences)
    assert summary is not None
    mean, sd, n = summary.mean, summary.sd, summary.n
    estimate = None if sd is None else _Estimate(mean, sd / math.sqrt(n), n - 1)
    p, equivalent_p = _tests(estimate, margin)
    flips = sign_flip_p(differences)
    return Contrast(mean, sd, n, summary.half_width, p, equivalent_p, flips, True, differences)


def _welch(values: Sequence[float], reference: Sequence[float], margin: float | None) -> Contrast:
    ours, theirs = summarize(values), summarize(reference)
    assert ours is not None and theirs is not None
    mean, n = ours.mean - theirs.mean, min(ours.n, theirs.n)
    if ours.sd is None or theirs.sd is None:
        return Contrast(mean, None, n, None, None, None, None, False)
    estimate = _welch_estimate(mean, (ours.sd, ours.n), (theirs.sd, theirs.n))
    half_width = t_quantile(estimate.degrees) * estimate.error
    p, equivalent_p = _tests(estimate, margin)
    sd = math.hypot(ours.sd, theirs.sd)
    return Contrast(mean, sd, n, half_width, p, equivalent_p, None, False)


def _welch_estimate(mean: float, ours: tuple[float, int], theirs: tuple[float, int]) -> _Estimate:
    """Each arm as (sd, n); degrees of freedom after Welch (1947) and Satterthwaite (1946)."""
    variances = [sd**2 / n for sd, n in (ours, theirs)]
    total = math.fsum(variances)
    if total == 0:
        return _Estimate(mean, 0.0, ours[1] + theirs[1] - 2)
    inverse = sum(
        (part / total) ** 2 / (n - 1)
        for part, (_, n) in zip(variances, (ours, theirs), strict=True)
    )
    return _Estimate(mean, math.sqrt(total), 1 / inverse)


def _tests(estimate: _Estimate | None, margin: float | None) -> tuple[float | None, float | None]:
    if estimate is None:
        return None, None
    return estimate.two_sided(), None if margin is None else estimate.within(margin)
