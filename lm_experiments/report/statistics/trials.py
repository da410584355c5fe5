"""What the trials of a tuned study say of its key, for each tuning seed by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lm_experiments.report.collect import Run
from lm_experiments.report.statistics.tuned import losses_of, sensitivity_of
from lm_experiments.rundir.published import BEST_VALUE, SENSITIVITY
from lm_experiments.rundir.study import Tuning

# A measure of each tuning seed, or why there is none.
Measured = Mapping[int, float] | str


@dataclass(frozen=True)
class Trials:
    """The search of a study, and the runs that tried its values."""

    tune: Tuning
    runs: Sequence[Run]

    def measured(self, measure: str, arm: str) -> Measured:
        """Return an arm's sensitivity or best value by tuning seed, or why it has none.

        A sensitivity is in nats per token (`tuning_noise.sensitivity`). A best value is its binary
        logarithm, so that differences are octaves: the lowest point of the parabola through the
        best value of the grid and its neighbours.
        """
        found = {}
        for seed in self.tune.seeds:
            one = self._of_seed(arm, seed)
            if one is None:
                return f"not every value of {self.tune.key} has a trial of {arm} with seed {seed}"
            value = _MEASURES[measure](self.tune.grid, one)
            if value is None:
                return _LACKS[measure].format(key=self.tune.key, arm=arm, seed=seed)
            found[seed] = value
        return found

    def _of_seed(self, arm: str, seed: int) -> list[Run] | None:
        """The trials of all values, in the order of the grid."""
        mine = (run for run in self.runs if run.arm == arm and run.seed == seed and run.finished)
        by_value = {run.setting.get(self.tune.key): run for run in mine}
        known = [by_value[value] for value in self.tune.grid if value in by_value]
        return known if len(known) == len(self.tune.grid) else None


def _sensitivity(_: Sequence[float], trials: Sequence[Run]) -> float | None:
    return sensitivity_of([[run] for run in trials])


def _best_value(grid: Sequence[float], trials: Sequence[Run]) -> float | None:
    [losses] = losses_of([trials], "val_loss")
    places = [math.log2(value) for value in grid]
    best = losses.index(min(losses))
    if best in (0, len(losses) - 1):
        return None
    near = losses[best - 1 : best + 2]
    if not all(map(math.isfinite, near)):
        return places[best]
    (x0, x1, x2), (y0, y1, y2) = places[best - 1 : best + 2], near
    left, right = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    # The slope of the parabola is linear, and that of a chord is its slope midway.
    return (x0 + x1) / 2 - left * (x2 - x0) / 2 / (right - left) if right > left else x1


_MEASURES: dict[str, Callable[[Sequence[float], Sequence[Run]], float | None]] = {
    SENSITIVITY: _sensitivity,
    BEST_VALUE: _best_value,
}
_LACKS = {
    SENSITIVITY: "no value of {key} trains {arm} with seed {seed}, or its first loss is not known",
    BEST_VALUE: "the best {key} of {arm} with seed {seed} lies at the edge of the grid",
}
