"""Means and paired contrasts over seeds, with Student-t intervals and tests.

Nothing here reads files: losses go in, frozen records of statistics come out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_experiments.report.statistics.failures import holm_with_failures

CONFIDENCE = 0.95


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
    # Imported here because scipy is slow to load.
    from scipy.special import stdtrit

    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in numbers) / (n - 1))
    return Summary(mean, sd, n, float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * sd / math.sqrt(n))


def contrast(
    values: Mapping[int, float], reference: Mapping[int, float], margin: float | None = None
) -> Contrast | None:
    """Compare two arms, each given as loss by seed; None when either has no loss at all.

    Paired over common seeds. Where fewer than two are shared, the Welch interval is used if
    both arms have two seeds, or if none is shared. `margin` (nats per token, above zero) is the
    largest difference that does not matter, and needed for `equivalent_p`.
    Raises `ValueError` for a loss that is not finite and for a margin that is not above zero.
    """
    for seed, loss in (*values.items(), *reference.items()):
        if not math.isfinite(loss):
            raise ValueError(
                f"The loss of seed {seed} is {loss!r}; pass finite losses only, and count a run "
                "without one among its arm's failures."
            )
    if margin is not None and not 0 < margin < math.inf:
        raise ValueError(
            f"The equivalence margin is {margin!r}; write a finite number of nats per token above "
            "zero, such as 0.01, or leave it out."
        )
    if not values or not reference:
        return None
    common = sorted(values.keys() & reference.keys())
    differences = tuple(values[seed] - reference[seed] for seed in common)
    both_repeat = min(len(values), len(reference)) > 1
    if not differences or (len(differences) == 1 and both_repeat):
        return _welch(list(values.values()), list(reference.values()), margin)
    return _paired(differences, margin)


def adjust(contrasts: Sequence[Contrast | None]) -> list[Contrast | None]:
    """Set `adjusted_p` (Holm) of one study's declared contrasts, in their order.

    The family is all of them: a contrast without a p, of an arm that failed or has one seed,
    still counts, so that a failing arm does not make the others easier to believe.
    """
    p_values = {at: item.p if item else None for at, item in enumerate(contrasts)}
    adjusted = holm_with_failures(p_values)
    return [item and replace(item, adjusted_p=adjusted[at]) for at, item in enumerate(contrasts)]


def _paired(differences: tuple[float, ...], margin: float | None) -> Contrast:
    def test(shift: float, alternative: str) -> Any:
        from scipy import stats

        return stats.ttest_1samp(differences, shift, alternative=alternative)

    summary = summarize(differences)
    assert summary is not None
    mean, sd, n = summary.mean, summary.sd, summary.n
    tested = _tested(test, mean, sd, margin)
    return Contrast(mean, sd, n, *tested, True, differences)


def _welch(values: Sequence[float], reference: Sequence[float], margin: float | None) -> Contrast:
    def test(shift: float, alternative: str) -> Any:
        from scipy import stats

        moved = [value - shift for value in values]
        return stats.ttest_ind(moved, reference, equal_var=False, alternative=alternative)

    ours, theirs = summarize(values), summarize(reference)
    assert ours is not None and theirs is not None
    mean = ours.mean - theirs.mean
    sd = None if ours.sd is None or theirs.sd is None else math.hypot(ours.sd, theirs.sd)
    return Contrast(mean, sd, min(ours.n, theirs.n), *_tested(test, mean, sd, margin), False)


def _tested(
    test: Callable[[float, str], Any], mean: float, sd: float | None, margin: float | None
) -> tuple[float | None, float | None, float | None]:
    """The half-width of the 95 % interval, the two-sided p, and TOST's p (Schuirmann 1987).

    `test` is a t test of the difference against a shift, with scipy's word for the alternative.
    """
    if sd is None:
        return None, None, None
    if sd == 0:
        return 0.0, float(mean == 0), None if margin is None else float(abs(mean) >= margin)
    with warnings.catch_warnings():
        # scipy warns where all differences agree in most digits: their t is large, but rounded.
        warnings.simplefilter("ignore", RuntimeWarning)
        plain = test(0.0, "two-sided")
        low, high = plain.confidence_interval(CONFIDENCE)
        half_width, p = float(high - low) / 2, float(plain.pvalue)
        if margin is None:
            return half_width, p, None
        above, below = test(-margin, "greater"), test(margin, "less")
        return half_width, p, float(max(above.pvalue, below.pvalue))
