"""A declared study: what ``conf/study/NAME.yaml`` says, and ``sweep.json`` keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from lm_experiments.errors import InputError
from lm_experiments.fields import Use
from lm_experiments.rundir.evaluations import Evaluate
from lm_experiments.rundir.ladder import Ladder, Rung, read_ladder
from lm_experiments.rundir.measures import MEASURES
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.published import Claim

# What a run is for: reported at the baseline's setting, reported at the arm's own best, a trial.
REPORT, TUNED, TUNE = "report", "tuned", "tune"
ROLES = (REPORT, TUNED, TUNE)
# Fewer seeds give no verdict.
FEWEST_SEEDS = 3


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
        halving: whether the worse half of an arm's values ends at each of two `rungs`.
    """

    key: str = "optimizer.lr"
    grid: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: [1000, 1001, 1002])
    limit: int = 2
    chosen: Annotated[dict[str, Chosen], Use.DERIVED] = field(default_factory=dict)
    halving: bool = False

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

    def rungs(self, max_steps: int) -> tuple[int, int]:
        """Return the steps after which halving looks: about an eighth and half of all."""
        first = max_steps // 8
        if not first:
            raise InputError(
                f"study.tune.halving looks at an eighth of trainer.max_steps={max_steps}; type 8 "
                "or more, or study.tune.halving=false."
            )
        return first, 4 * first

    def budget(self, max_steps: int) -> float:
        """Return the share of the steps of all trials that are made, until the grid grows."""
        if not self.halving:
            return 1.0
        values, before, steps = len(self.grid), 0, 0
        for rung in (*self.rungs(max_steps), max_steps):
            steps += values * (rung - before)
            values, before = half(values), rung
        return steps / (len(self.grid) * max_steps)

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
        name: the study's name, and the sweep's folder unless ``name=`` gives another.
        baseline: the arm the others are compared with.
        arms: label -> overrides; the overrides are on top of ``overrides`` and the command line.
        overrides: what all arms share.
        seeds: the reporting seeds. Written as ``{first: 5, more: 5, at_most: 20}``, they are spent
            by rule: after the first 5, and after every 5 more, only undecided arms get more.
        looks: the numbers of seeds after which such a rule looks at the results; empty without.
        contrasts: [arm, reference] pairs tested together; null compares each arm with the baseline.
        controls: arms that repeat the baseline on purpose: their difference must be exactly 0.
        margin: differences smaller than this count as none, in the unit of the primary measure;
            null asks nothing.
        primary: the measure that is compared: val_loss, bits_per_byte, or accuracy or exact_match
            of a synthetic task, of which more is better. Where there is a test set it is measured
            there.
        tune: a search over one value, the same for every arm; null for none.
        published: what papers claim of these arms, which the table is held against.
        ladder: sizes or budgets, three or more, at each of which every arm is trained; null for
            one. What is expanded has each arm at each rung among its ``arms``.
        evaluate: other contexts, texts and tasks that the trained runs are measured on.
    """

    name: str
    baseline: str
    arms: dict[str, list[str]]
    overrides: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    looks: Annotated[list[int], Use.DERIVED] = field(default_factory=list)
    contrasts: list[list[str]] | None = None
    controls: list[str] = field(default_factory=list)
    margin: float | None = None
    primary: str = "val_loss"
    tune: Tuning | None = None
    published: list[Claim] = field(default_factory=list)
    ladder: Ladder | None = None
    evaluate: Evaluate | None = None

    def __post_init__(self) -> None:
        _check_arms(self)
        _check_contexts(self)
        _check_seeds(self)
        if self.margin is not None and self.margin <= 0:
            raise InputError(f"study.margin={self.margin:g} must be positive, or null.")
        _check_primary(self)

    @property
    def compared(self) -> list[list[str]]:
        """The declared contrasts, or every other arm against the baseline."""
        if self.contrasts is not None:
            return self.contrasts
        return [[arm, self.baseline] for arm in self.arms if arm != self.baseline]

    @property
    def declared_baseline(self) -> str:
        """The baseline before a ladder made one of it at each rung."""
        return self.ladder.baseline if self.ladder and self.ladder.rungs else self.baseline

    def baseline_of(self, arm: str) -> str:
        """Return the baseline that an arm is matched with: that of its rung, where it has one."""
        rung = self.rung_of(arm)
        return rung.arms[self.declared_baseline] if rung else self.baseline

    def rung_of(self, arm: str) -> Rung | None:
        """Return the rung of a ladder that an arm stands on, None without one."""
        return self.ladder.rung_of(arm) if self.ladder else None

    @property
    def cells(self) -> list[tuple[str, int, str]]:
        """The (arm, seed, role) of every run that the study reports, up to the first look."""
        tuned = self.arms if self.tune else ()
        cells = [(arm, seed, REPORT) for arm in self.arms for seed in self.first_seeds]
        return [*cells, *((arm, seed, TUNED) for arm in tuned for seed in self.seeds)]

    @property
    def first_seeds(self) -> list[int]:
        """The seeds that every arm gets: all, or those up to the first look."""
        return self.seeds[: self.looks[0]] if self.looks else self.seeds


@dataclass(frozen=True)
class SeedRule:
    """Seeds by rule: `first`, then `more` at a time for what is undecided, up to `at_most`."""

    first: int
    more: int
    at_most: int

    def __post_init__(self) -> None:
        if self.first < FEWEST_SEEDS or self.more < 1 or self.at_most < self.first:
            raise InputError(
                f"study.seeds={dataclasses.asdict(self)} is no rule; first is {FEWEST_SEEDS} or "
                "more, more is 1 or more, and at_most is not below first: "
                "study.seeds={first:5,more:5,at_most:20}."
            )

    @property
    def looks(self) -> list[int]:
        """The numbers of seeds after which the results are looked at."""
        return [*range(self.first, self.at_most, self.more), self.at_most]


def read_study(values: Mapping[str, Any]) -> Study:
    """Turn plain values into a checked `Study`; `InputError` says what is wrong with them."""
    if isinstance(seeds := values.get("seeds"), Mapping):
        rule = build(SeedRule, seeds, "study.seeds")
        values = {**values, "seeds": list(range(rule.at_most)), "looks": rule.looks}
    return build(Study, values, "study", {"arms": _arms, "tune": _tuning, "ladder": read_ladder})


def _tuning(values: Any) -> Tuning | None:
    def _chosen(arms: Mapping[str, Any]) -> dict[str, Chosen]:
        path = "study.tune.chosen"
        return {str(arm): build(Chosen, found, f"{path}.{arm}") for arm, found in arms.items()}

    return None if values is None else build(Tuning, values, "study.tune", {"chosen": _chosen})


def _arms(values: Any) -> dict[str, list[str]]:
    if not isinstance(values, Mapping) or not values:
        raise InputError("study.arms is not a section of arms; write label: [override, ...].")
    arms = {}
    for label, overrides in values.items():
        if not isinstance(label, str):
            raise InputError(
                f"study.arms: a label is read as {label!r}, and not as the word that was written; "
                "quote it, for example 'no': [position=none]."
            )
        if not isinstance(overrides, list) or not all(isinstance(o, str) for o in overrides):
            raise InputError(
                f"study.arms: the overrides of {label!r} are {overrides!r}; write them as a list, "
                "for example [norm=none]."
            )
        arms[label] = list(overrides)
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


def _check_contexts(study: Study) -> None:
    measured = study.evaluate.contexts if study.evaluate else []
    for claim in study.published:
        if claim.context is not None and not {claim.context, 1.0} <= set(measured):
            raise InputError(
                f"study.published, {claim.claim!r}: context={claim.context:g} takes both it and 1 "
                f"among study.evaluate.contexts, which are {measured}."
            )


def _check_primary(study: Study) -> None:
    if study.primary not in MEASURES:
        raise InputError(
            f"study.primary={study.primary} is not known; it can be {', '.join(MEASURES)}."
        )
    by_loss = "study.tune" if study.tune else "seeds by rule" if study.looks else ""
    if by_loss and MEASURES[study.primary].answers:
        raise InputError(
            f"study.primary={study.primary} does not go with {by_loss}, decided by a loss; type "
            "study.primary=val_loss, or a fixed learning rate and number of seeds."
        )


def check_looks(looks: Sequence[int]) -> None:
    """Raise `InputError` unless looks come after rising numbers of seeds that allow a verdict."""
    if not looks or list(looks) != sorted(set(looks)) or looks[0] < FEWEST_SEEDS:
        raise InputError(
            f"study.looks={list(looks)} must be rising numbers of seeds from {FEWEST_SEEDS} on."
        )


def _check_seeds(study: Study) -> None:
    if not study.seeds:
        raise InputError("study.seeds is empty; type study.seeds=[0,1,2].")
    if len(set(study.seeds)) < len(study.seeds) or min(study.seeds) < 0:
        raise InputError(f"study.seeds={study.seeds} must differ from each other and be 0 or more.")
    if study.looks:
        check_looks(study.looks)
    if study.looks and study.looks[-1] != len(study.seeds):
        raise InputError(
            f"study.looks={study.looks} must end with the number of study.seeds, "
            f"{len(study.seeds)}; write study.seeds={{first:5,more:5,at_most:20}} to declare both."
        )
    if study.looks and study.tune:
        raise InputError(
            "study.tune does not go with seeds by rule, whose tests do not count the noise of the "
            "choice; declare a fixed number: study.seeds=[0,1,2,3,4]."
        )
    if study.looks and study.ladder:
        raise InputError(
            "study.ladder does not go with seeds by rule, which would give rungs unlike seeds; "
            "declare a fixed number: study.seeds=[0,1,2]."
        )
    if study.tune and study.ladder and study.ladder.trunk:
        raise InputError(
            f"study.ladder.trunk=true does not go with study.tune, which may choose another "
            f"{study.tune.key} for each rung; type study.ladder.trunk=false."
        )
    shared = set(study.seeds) & set(study.tune.seeds if study.tune else [])
    if shared:
        raise InputError(
            f"study.tune.seeds and study.seeds share {sorted(shared)}; what is tuned on a seed "
            "must not be reported on it: choose others, for example "
            "study.tune.seeds=[1000,1001,1002]."
        )


def half(values: int) -> int:
    """Return how many of some values are the better half."""
    return -(-values // 2)


def _round(value: float) -> float:
    """Return the value to two significant digits, as people write grids."""
    return float(f"{value:.1e}")
