"""What it takes an arm to reach the loss with which its baseline ends, as a ratio.

A point on the way has not had the learning rate's decay, which lowers the loss at the end. So with
a schedule that decays, a run planned for that many tokens would do better: the ratio is an upper
bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lm_experiments.report.collect import Run
from lm_experiments.report.statistics.contrasts import summarize


@dataclass(frozen=True)
class ToLoss:
    """How much an arm needs of what the baseline needs for its own final loss.

    Attributes:
        reached: the seeds, of `seeds` that both have, on which the arm comes as low as that.
        ratio: the geometric mean over seeds; None where not all of them reach it.
        low, high: the 95 % t interval, made of logarithms; None with one seed.
    """

    reached: int
    seeds: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


def to_loss(
    runs: Sequence[Run], baseline: Sequence[Run], against: str, timed: bool = False
) -> ToLoss | None:
    """Compare what runs take to the final loss of the baseline's run with the same seed.

    Losses are points of the validation curve, of both alike. What is compared is tokens, flops or
    seconds; with ``timed`` a run takes as long as the baseline's, whatever the clock said. None
    where no seed has both curves, in the same tokens.
    """
    others = {run.seed: run for run in baseline}
    pairs = [(run, others[run.seed]) for run in runs if run.seed in others]
    pairs = [pair for pair in pairs if _comparable(*pair)]
    if not pairs:
        return None
    found = [_log_ratio(run, other, against, timed) for run, other in pairs]
    ratios = [ratio for ratio in found if ratio is not None]
    summary = summarize(ratios) if len(ratios) == len(pairs) else None
    if summary is None:
        return ToLoss(len(ratios), len(pairs))
    half = summary.half_width
    bounds = (None, None) if half is None else (summary.mean - half, summary.mean + half)
    low, high = (None if bound is None else math.exp(bound) for bound in bounds)
    return ToLoss(len(ratios), len(pairs), math.exp(summary.mean), low, high)


def to_loss_text(found: ToLoss | None) -> str:
    """Say what it takes, such as "1.40x fewer [1.28, 1.54]", or how many seeds get there."""
    if found is None or found.ratio is None:
        return f"{found.reached} of {found.seeds} reach it" if found else ""
    fewer = found.ratio <= 1
    bounds = [bound for bound in (found.low, found.high) if bound is not None]
    ends = sorted(1 / bound for bound in bounds) if fewer else bounds
    interval = f" [{', '.join(f'{end:.2f}' for end in ends)}]" if ends else ""
    ratio, word = (1 / found.ratio, "fewer") if fewer else (found.ratio, "more")
    return f"{ratio:.2f}x {word}{interval}"


def steps_to(curve: Mapping[int, float], loss: float) -> float | None:
    """Return the step at which a curve first comes down to a loss, None where it does not.

    Between its points a curve is a straight line over the logarithm of the step. A curve that
    begins below the loss gives its first step.
    """
    points = sorted(curve.items())
    if points[0][1] <= loss:
        return float(points[0][0])
    for (before, high), (after, low) in pairwise(points):
        if low <= loss:
            share = (high - loss) / (high - low)
            return float(before * (after / before) ** share)
    return None


def _comparable(run: Run, baseline: Run) -> bool:
    """Whether both have curves, and a loss per token is of the same tokens."""
    same = run.result.tokenizer_hash == baseline.result.tokenizer_hash
    return same and bool(run.curve and baseline.curve)


def _log_ratio(run: Run, baseline: Run, against: str, timed: bool) -> float | None:
    last, loss = max(baseline.curve.items())
    steps, pair = steps_to(run.curve, loss), (run, baseline)
    own, other = (one.per_step(against) for one in pair)
    if timed:
        # By steps that were timed in turns, and not by a clock that is shared.
        own, other = (1 / one.result.steps if one.result.steps else None for one in pair)
    if steps is None or not own or not other:
        return None
    return math.log(steps * own / (last * other))
