"""Means and paired contrasts over seeds, with Student-t intervals and tests.

Nothing here reads files: losses go in, frozen records of statistics come out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
class Within:
    """The test of a contrast for equivalence, Holm-adjusted over the family.

    The contrast is `equivalent` exactly when the interval from `low` to `high` lies within the
    margin. Its `confidence` is 0.90 for one contrast, and higher in a family.
    """

    adjusted_p: float
    equivalent: bool
    confidence: float
    low: float
    high: float


@dataclass(frozen=True)
class Contrast:
    """An arm's loss minus its reference's, in nats per token; below zero the arm is better.

    `paired` says how it was made. Paired: over the n seeds both arms have, whose differences
    are kept in `differences`, in the order of `seeds`; this needs no equal variances. Not paired
    (Welch): from two separate means, where n is the smaller of the two counts and `sd` is that of
    a difference between one run of each arm. `low` and `high` bound the 95 % interval and `p` is
    two-sided. `error` and `degrees` are those of its t test. `equivalent_p` is the larger p
    of two one-sided tests against the margin (TOST). What takes two values or more is None with
    fewer, and `adjusted_p` and `within` are None until `adjust` sets them. Where
    `moderated.moderate` made `p` that of a moderated test, `test_error` and `test_degrees` are
    that test's, `plain_p` is the p of the plain one, and `plain_adjusted_p` Holm's; elsewhere
    these are None.
    """

    mean: float
    sd: float | None
    n: int
    error: float | None
    degrees: float | None
    half_width: float | None
    p: float | None
    equivalent_p: float | None
    paired: bool
    differences: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()
    adjusted_p: float | None = None
    test_error: float | None = None
    test_degrees: float | None = None
    plain_p: float | None = None
    plain_adjusted_p: float | None = None
    within: Within | None = None

    @property
    def low(self) -> float | None:
        """The lower end of the 95 % interval."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """The upper end of the 95 % interval."""
        return None if self.half_width is None else self.mean + self.half_width

    @property
    def deciding(self) -> tuple[float | None, float | None]:
        """The standard error and degrees of freedom of the test that `p` is of."""
        if self.test_error is None:
            return self.error, self.degrees
        return self.test_error, self.test_degrees

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
    return replace(_paired(differences, margin), seeds=tuple(common))


def adjust(
    contrasts: Sequence[Contrast | None], margin: float | None = None
) -> list[Contrast | None]:
    """Set `adjusted_p` (Holm), and `within` where there is a margin, of one study's contrasts.

    The family is all of them: a contrast without a p, of an arm that failed or has one seed,
    still counts, so that a failing arm does not make the others easier to believe.
    """
    adjusted = holm_with_failures({at: c.p if c else None for at, c in enumerate(contrasts)})
    plain = holm_with_failures({at: c.plain_p if c else None for at, c in enumerate(contrasts)})
    within = _within(contrasts, margin) if margin is not None else {}
    return [
        c and replace(c, adjusted_p=adjusted[at], plain_adjusted_p=plain[at], within=within.get(at))
        for at, c in enumerate(contrasts)
    ]


def widened(
    found: Contrast, widen: Callable[[float, float], tuple[float, float]], margin: float | None
) -> Contrast:
    """A tested contrast with more noise in its error, and so in its interval and its p.

    `widen` gives the error and degrees of freedom with the noise from those without it.
    """
    assert found.error is not None and found.degrees is not None
    error, degrees = widen(found.error, found.degrees)
    half_width, p, equivalent_p = _tested(found.mean, error, degrees, margin)
    wider = replace(
        found,
        error=error,
        degrees=degrees,
        half_width=half_width,
        p=p,
        equivalent_p=equivalent_p,
    )
    if found.test_error is None or found.test_degrees is None:
        return wider
    error, degrees = widen(found.test_error, found.test_degrees)
    p_moderated = _tested(found.mean, error, degrees, margin)[1]
    return replace(wider, p=p_moderated, plain_p=p, test_error=error, test_degrees=degrees)


def _within(contrasts: Sequence[Contrast | None], margin: float) -> dict[int, Within]:
    """The equivalence tests of the contrasts that have a p; the others count as p = 1."""
    # Imported here because numpy and scipy are slow to load.
    import numpy as np

    from lm_experiments.report.statistics.equivalence import equivalence
    from lm_experiments.report.statistics.estimates import Estimates

    tested = {at: item for at, item in enumerate(contrasts) if item and item.p is not None}
    numbers = np.full((3, len(contrasts)), np.nan)
    for at, item in tested.items():
        numbers[:, at] = item.mean, item.error, item.degrees
    found = equivalence(Estimates(*numbers), margin)
    columns = (found.adjusted_p, found.equivalent, found.confidence, found.low, found.high)
    return {at: Within(*(column[at].item() for column in columns)) for at in tested}


def _paired(differences: tuple[float, ...], margin: float | None) -> Contrast:
    summary = summarize(differences)
    assert summary is not None
    mean, sd, n = summary.mean, summary.sd, summary.n
    if sd is None:
        return Contrast(mean, None, n, None, None, None, None, None, True, differences)
    error, degrees = sd / math.sqrt(n), float(n - 1)
    tested = _tested(mean, error, degrees, margin)
    return Contrast(mean, sd, n, error, degrees, *tested, True, differences)


def _welch(values: Sequence[float], reference: Sequence[float], margin: float | None) -> Contrast:
    ours, theirs = summarize(values), summarize(reference)
    assert ours is not None and theirs is not None
    mean, n = ours.mean - theirs.mean, min(ours.n, theirs.n)
    if ours.sd is None or theirs.sd is None:
        return Contrast(mean, None, n, None, None, None, None, None, False)
    parts = [ours.sd**2 / ours.n, theirs.sd**2 / theirs.n]
    # Degrees of freedom by Welch and Satterthwaite (Welch 1947).
    share = parts[0] ** 2 / (ours.n - 1) + parts[1] ** 2 / (theirs.n - 1)
    degrees = sum(parts) ** 2 / share if share else float(n - 1)
    error, sd = math.sqrt(sum(parts)), math.hypot(ours.sd, theirs.sd)
    tested = _tested(mean, error, degrees, margin)
    return Contrast(mean, sd, n, error, degrees, *tested, False)


def _tested(
    mean: float, error: float, degrees: float, margin: float | None
) -> tuple[float, float, float | None]:
    """The half-width of the 95 % interval, the two-sided p, and TOST's p (Schuirmann 1987)."""
    # Imported here because numpy and scipy are slow to load.
    import numpy as np
    from scipy.special import stdtrit

    from lm_experiments.report.statistics.estimates import Estimates

    found = Estimates(np.array([mean]), np.array([error]), np.array([degrees]))
    half_width = float(stdtrit(degrees, 0.5 + CONFIDENCE / 2)) * error
    equivalent_p = None if margin is None else float(found.p_within(margin)[0])
    return half_width, float(found.p()[0]), equivalent_p
