"""A declared study: what ``conf/study/NAME.yaml`` says, and ``sweep.json`` keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.rundir.parse import build

# What a run is for: reported at the baseline's setting, reported at the arm's own best, a trial.
REPORT, TUNED, TUNE = "report", "tuned", "tune"
ROLES = (REPORT, TUNED, TUNE)


@dataclass(frozen=True)
class Chosen:
    """The value that tuning chose for an arm.

    Attributes:
        edge: ``low`` or ``high`` where it lies at an end of the grid.
        failed: how many of its own trials ended without a finite loss.
    """

    value: float
    edge: str | None = None
    failed: int = 0


@dataclass(frozen=True)
class Tuning:
    """A search over one value, the same for every arm.

    Attributes:
        key: the value that is tuned, as it is typed.
        grid: the values tried, ascending.
        seeds: the seeds of the trials; none of them is a reporting seed.
        limit: how often the grid may grow, for all arms alike, while a winner sits on its edge.
        chosen: by arm, what was found; empty until all trials have ended.
    """

    key: str = "optimizer.lr"
    grid: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: [1000, 1001, 1002])
    limit: int = 2
    chosen: dict[str, Chosen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.grid) < 3 or self.grid != sorted(set(self.grid)) or self.grid[0] <= 0:
            raise InputError(
                f"study.tune.grid={self.grid} must be three or more positive values, ascending; "
                "type for example study.tune.grid=[1e-3,3e-3,1e-2]."
            )
        if not self.seeds or self.limit < 0:
            raise InputError("study.tune needs at least one seed, and a limit of 0 or more.")

    @property
    def trials(self) -> int:
        """Trials of each arm."""
        return len(self.grid) * len(self.seeds)

    def grown(self, low: bool, high: bool) -> Tuning:
        """Return the search with one more value, by the grid's own ratio, on the sides asked."""
        first, last = self.grid[0], self.grid[-1]
        below = [_round(first * first / self.grid[1])] if low else []
        above = [_round(last * last / self.grid[-2])] if high else []
        return dataclasses.replace(self, grid=[*below, *self.grid, *above])


@dataclass(frozen=True)
class Study:
    """A baseline, its arms, seeds, contrasts and tuning.

    Attributes:
        baseline: the arm the others are compared with.
        arms: label -> overrides; the overrides are on top of ``overrides`` and the command line.
        overrides: what all arms share.
        seeds: the reporting seeds.
        contrasts: [arm, reference] pairs tested together; None compares each arm with the baseline.
        controls: arms that repeat the baseline on purpose: their difference must be exactly 0.
        margin: differences smaller than this many nats per token count as none; None asks nothing.
        primary: the metric that is compared.
    """

    name: str
    baseline: str
    arms: dict[str, list[str]]
    overrides: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    contrasts: list[list[str]] | None = None
    controls: list[str] = field(default_factory=list)
    margin: float | None = None
    primary: str = "val_loss"
    tune: Tuning | None = None

    def __post_init__(self) -> None:
        _check_arms(self)
        _check_seeds(self)
        if self.margin is not None and self.margin <= 0:
            raise InputError(f"study.margin={self.margin:g} must be positive, or null.")
        if self.primary != "val_loss":
            raise InputError(f"study.primary={self.primary} is not known; it can be val_loss.")

    @property
    def compared(self) -> list[list[str]]:
        """The declared contrasts, or every other arm against the baseline."""
        if self.contrasts is not None:
            return self.contrasts
        return [[arm, self.baseline] for arm in self.arms if arm != self.baseline]

    @property
    def cells(self) -> list[tuple[str, int, str]]:
        """The (arm, seed, role) of every run that the finished study reports."""
        tuned = self.arms if self.tune else ()
        cells = [(arm, seed, REPORT) for arm in self.arms for seed in self.seeds]
        return [*cells, *((arm, seed, TUNED) for arm in tuned for seed in self.seeds)]


def read_study(values: Mapping[str, Any]) -> Study:
    """Turn plain values into a checked `Study`; `InputError` says what is wrong with them."""
    return build(Study, values, "study", {"arms": _arms, "tune": _tuning})


def _tuning(values: Any) -> Tuning | None:
    def chosen(arms: Mapping[str, Any]) -> dict[str, Chosen]:
        path = "study.tune.chosen"
        return {str(arm): build(Chosen, found, f"{path}.{arm}") for arm, found in arms.items()}

    return None if values is None else build(Tuning, values, "study.tune", {"chosen": chosen})


def _arms(values: Any) -> dict[str, list[str]]:
    if not isinstance(values, Mapping) or not values:
        raise InputError("study.arms is not a section of arms; write label: [override, ...].")
    arms = {}
    for label, overrides in values.items():
        if not isinstance(overrides, list) or not all(isinstance(o, str) for o in overrides):
            raise InputError(
                f"study.arms: the overrides of {label!r} are {overrides!r}; write them as a list, "
                "for example [norm=none]."
            )
        arms[str(label)] = list(overrides)
    return arms


def _check_arms(study: Study) -> None:
    known = list(study.arms)
    named = [study.baseline, *study.controls, *(arm for pair in study.compared for arm in pair)]
    for arm in named:
        if arm not in known:
            where = "study.baseline" if arm == study.baseline else "study.contrasts or controls"
            raise InputError(f"{where} names {arm!r}, which is not among the arms: {known}.")
    for pair in study.compared:
        if len(pair) != 2 or pair[0] == pair[1]:
            raise InputError(f"study.contrasts holds {pair}; write two arms, [arm, reference].")
    pairs = [frozenset(pair) for pair in study.compared]
    if repeated := [pair for pair in study.compared if pairs.count(frozenset(pair)) > 1]:
        found = " and ".join(map(str, repeated))
        raise InputError(
            f"study.contrasts holds {found}, which compare the same two arms; keep one of them, as "
            "each contrast makes the tests of all others stricter."
        )


def _check_seeds(study: Study) -> None:
    if not study.seeds:
        raise InputError("study.seeds is empty; type study.seeds=[0,1,2].")
    if len(set(study.seeds)) < len(study.seeds) or min(study.seeds) < 0:
        raise InputError(f"study.seeds={study.seeds} must differ from each other and be 0 or more.")
    shared = set(study.seeds) & set(study.tune.seeds if study.tune else [])
    if shared:
        raise InputError(
            f"study.tune.seeds and study.seeds share {sorted(shared)}; what is tuned on a seed "
            "must not be reported on it: choose others, for example "
            "study.tune.seeds=[1000,1001,1002]."
        )


def _round(value: float) -> float:
    """Return the value to two significant digits, as people write grids."""
    return float(f"{value:.1e}")
