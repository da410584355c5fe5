"""What the tuning of arms brings to their contrasts: noise of the choice, and edges of the grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from lm_experiments.report.collect import Run, Sweep
from lm_experiments.report.statistics.contrasts import Contrast, widened
from lm_experiments.report.statistics.tuning import FEWEST_TUNING_SEEDS
from lm_experiments.rundir.live import max_steps_of
from lm_experiments.rundir.metrics import loss_at
from lm_experiments.rundir.names import METRICS
from lm_experiments.rundir.study import Tuning

if TYPE_CHECKING:
    from lm_experiments.report.statistics.tuning_noise import ChoiceNoise

EDGE_OF_GRID = "edge of the grid"


@dataclass(frozen=True)
class Tuned:
    """An arm's tuning: what its trials say about the value that they chose.

    `edge` tells that the chosen value is the smallest or the largest of the grid. `noise` is that
    of the choice, over `seeds` tuning seeds; None with fewer than `FEWEST_TUNING_SEEDS`, and
    where no value trained with all of them. With halving, it is the noise at the first rung, the
    last that all values reached. `sensitivity` is the mean excess loss over the grid (nats per
    token, Wortsman et al. 2023), None where the loss at the start, or of a value, is not known.
    """

    edge: bool
    seeds: int
    noise: ChoiceNoise | None
    sensitivity: float | None


def tuned_arms(sweep: Sweep, metric: str) -> dict[str, Tuned]:
    """The tuning of every arm whose value is chosen, by label; empty elsewhere."""
    tune = sweep.study.tune if sweep.study else None
    if tune is None:
        return {}
    found = {}
    for arm, chosen in tune.chosen.items():
        trials = {
            (run.setting.get(tune.key), run.seed): run for run in sweep.trials if run.arm == arm
        }
        cells = [[trials.get((value, seed)) for seed in tune.seeds] for value in tune.grid]
        runs = [[run for run in row if run and run.finished] for row in cells]
        whole = all(len(row) == len(tune.seeds) for row in runs)
        losses = losses_of(runs, metric) if whole else None
        if losses is None and metric == "val_loss":
            losses = _losses_at_rung(tune, cells)
        noise = _noise(losses) if losses else None
        known = sensitivity_of(runs) if whole and metric == "val_loss" else None
        found[arm] = Tuned(chosen.edge is not None, len(tune.seeds), noise, known)
    return found


def with_choices(
    found: Contrast | None,
    arms: Iterable[str],
    tuned: Mapping[str, Tuned],
    margin: float | None,
) -> Contrast | None:
    """A tested contrast of tuned arms with the noise of their choices in its error."""
    sides = [tuned[arm] for arm in arms if arm in tuned]
    noises = [side.noise for side in sides if side.noise]
    if found is None or found.p is None or not noises:
        return found
    # Imported here because numpy is slow to load.
    from lm_experiments.report.statistics.tuning_noise import choice_error

    def _widen(error: float, degrees: float) -> tuple[float, float]:
        return choice_error(error, degrees, noises, sides[0].seeds)

    return widened(found, _widen, margin)


def losses_of(runs: Sequence[Sequence[Run]], metric: str) -> list[list[float]]:
    """The trials' losses, infinite where one failed: (values, tuning seeds)."""
    values = [[run.value(metric) for run in row] for row in runs]
    return [[math.inf if loss is None else loss for loss in row] for row in values]


def _losses_at_rung(tune: Tuning, cells: list[list[Run | None]]) -> list[list[float]] | None:
    """The losses at the first rung of halving, (values, tuning seeds); None where one lacks."""
    if not tune.halving or any(run is None for row in cells for run in row):
        return None
    found = [[_loss_at_rung(tune, run) for run in row if run] for row in cells]
    whole = all(loss is not None for row in found for loss in row)
    return [[loss for loss in row if loss is not None] for row in found] if whole else None


def _loss_at_rung(tune: Tuning, run: Run) -> float | None:
    max_steps = max_steps_of(run.directory)
    loss = loss_at(run.directory / METRICS, tune.rungs(max_steps)[0]) if max_steps else None
    if loss is None:
        return math.inf if run.failing else None
    return loss if math.isfinite(loss) else math.inf


def _noise(losses: list[list[float]]) -> ChoiceNoise | None:
    from lm_experiments.report.statistics.tuning_noise import choice_noise

    trained = any(all(map(math.isfinite, row)) for row in losses)
    return choice_noise(losses) if trained and len(losses[0]) >= FEWEST_TUNING_SEEDS else None


def sensitivity_of(runs: Sequence[Sequence[Run]]) -> float | None:
    """The sensitivity of trials (values, tuning seeds), None where it cannot be known."""
    from lm_experiments.report.statistics.tuning_noise import sensitivity

    starts = [loss for row in runs for run in row if (loss := run.result.initial_loss) is not None]
    losses = [fmean(row) for row in losses_of(runs, "val_loss")]
    if not starts or not any(map(math.isfinite, losses)) or not math.isfinite(fmean(starts)):
        return None
    return sensitivity(losses, fmean(starts))
