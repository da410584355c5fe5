"""Turn runs into the rows of a table: one per arm, with statistics over its seeds."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lm_experiments.errors import InputError
from lm_experiments.report.collect import Run, Sweep
from lm_experiments.report.statistics.compare import Comparison, Plan, compare, plan_contrasts
from lm_experiments.report.statistics.contrasts import Contrast, Summary, summarize
from lm_experiments.report.statistics.elsewhere import Elsewhere, elsewhere
from lm_experiments.report.statistics.exploratory import late_claims
from lm_experiments.report.statistics.grid import grid_effects
from lm_experiments.report.statistics.ladder import LadderFindings, ladder_findings
from lm_experiments.report.statistics.power import ALPHA, smallest_resolvable
from lm_experiments.report.statistics.published import Finding, held_against
from lm_experiments.report.statistics.text_noise import with_text_noise
from lm_experiments.report.statistics.trials import Trials
from lm_experiments.report.statistics.tuned import Tuned, tuned_arms
from lm_experiments.report.statistics.verdicts import MORE_SEEDS, ranking_key
from lm_experiments.report.table.comparable import refuse_mixed, tokenizers_differ
from lm_experiments.rundir.measures import SCORES, TESTED, sign_of
from lm_experiments.rundir.results import FAILED, OK, WAITING
from lm_experiments.rundir.study import FEWEST_SEEDS, REPORT, TUNED, Chosen, Tuning

if TYPE_CHECKING:
    from lm_experiments.report.statistics.factorial import Effects

ERROR_CHARACTERS = 60


@dataclass(frozen=True)
class Side:
    """An arm's runs under one setting: their mean and the contrasts they are in."""

    runs: tuple[Run, ...]
    loss: Summary | None
    comparisons: tuple[Comparison, ...] = ()

    @property
    def usable(self) -> tuple[Run, ...]:
        """The runs whose final loss is in the mean."""
        return tuple(run for run in self.runs if run.usable)

    @property
    def outcome(self) -> str:
        """What became of the runs: "ok", "2 of 3 ok, 1 diverged", "FAILED: the error"."""
        counts = Counter(run.outcome for run in self.runs)
        total = len(self.runs)
        if not counts:
            return WAITING
        if len(counts) > 1:
            others = [f"{n} {outcome}" for outcome, n in counts.items() if outcome != OK]
            return ", ".join([f"{counts[OK]} of {total} ok", *others])
        (outcome,) = counts
        failed = next((run.error for run in self.runs if run.status == FAILED), None)
        count = "" if total == 1 or outcome == OK else f" ({total} of {total})"
        reason = f": {first_words(failed)}" if failed else ""
        return f"{outcome}{count}{reason}"


@dataclass(frozen=True)
class Row:
    """One arm: `levels` are its values on the table's axes; losses are in the table's metric.

    `main` is what the arm is judged by. In a tuned study that is the arm at its own best setting,
    `chosen`, with what its trials say in `tuned`, and `common` is the arm at the baseline's;
    elsewhere these are None.
    """

    arm: str
    levels: tuple[str, ...]
    is_baseline: bool
    main: Side
    common: Side | None = None
    chosen: Chosen | None = None
    tuned: Tuned | None = None

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs the arm is judged by."""
        return self.main.runs

    @property
    def usable(self) -> tuple[Run, ...]:
        """Those whose final loss is in the mean."""
        return self.main.usable

    @property
    def known(self) -> tuple[Run, ...]:
        """All runs of the arm but its trials, those it is judged by before the others."""
        return (*self.main.runs, *(self.common.runs if self.common else ()))

    @property
    def loss(self) -> Summary | None:
        """The mean over usable runs, None without any."""
        return self.main.loss

    @property
    def comparison(self) -> Comparison | None:
        """The first contrast in which this arm is compared with another."""
        return self.main.comparisons[0] if self.main.comparisons else None

    @property
    def difference(self) -> Contrast | None:
        """The arm minus its reference."""
        return self.comparison.contrast if self.comparison else None

    @property
    def outcome(self) -> str:
        """What became of the runs, with failures at the baseline's setting named apart."""
        if self.common is None or not any(run.failing for run in self.common.runs):
            return self.main.outcome
        if self.common.runs == self.main.runs:
            return self.main.outcome
        return f"{self.main.outcome}; at the baseline's setting {self.common.outcome}"

    def first(self, name: str) -> float | None:
        """A number that is the same for all runs of an arm, from the first run that knows it."""
        return next((v for run in self.known if (v := run.fact(name)) is not None), None)

    def diagnostic(self, statistic: str, part: str = "") -> float | None:
        """A statistic of one part, or its largest, averaged over the usable runs that have it."""
        found = (run.diagnostic(statistic, part) for run in self.usable)
        summary = summarize(value for value in found if value is not None)
        return None if summary is None else summary.mean

    def mean(self, name: str) -> float | None:
        """A measured number, averaged over the usable runs that have it."""
        summary = summarize(v for run in self.usable if (v := run.fact(name)) is not None)
        return None if summary is None else summary.mean


@dataclass(frozen=True)
class Table:
    """Rows from the best on, arms with failures last; `axes` is empty when labels are used.

    `comparisons` are all contrasts the verdicts rest on. `resolvable` is the smallest difference
    the seeds could have shown, from the largest error of the paired differences. `mixed` tells that
    runs which differ in what they should share were allowed in. `effects` are those of the grid
    that the arms form, if they form one. `published` are the study's published claims with their
    verdicts. `ladder` is what the study's ladder says, if it has one.
    """

    sweep: Sweep
    baseline: str
    axes: tuple[str, ...]
    rows: tuple[Row, ...]
    plan: Plan
    comparisons: tuple[Comparison, ...]
    resolvable: float | None = None
    mixed: bool = False
    effects: Effects | None = None
    published: tuple[Finding, ...] = ()
    ladder: LadderFindings | None = None

    @property
    def metric(self) -> str:
        """What arms are compared by: a measure of `TESTED`, on the test set where there is one."""
        return self.plan.metric

    @property
    def moderated(self) -> bool:
        """Whether p is of moderated t tests, with that of the plain ones beside it."""
        return self.moderates((c.arm, c.reference) for c in self.comparisons)

    def moderates(self, pairs: Iterable[tuple[str, str]]) -> bool:
        """Return whether p is of a moderated t test for one of these pairs of arms."""
        asked = set(pairs)
        found = [c.contrast for c in self.comparisons if (c.arm, c.reference) in asked]
        return any(contrast and contrast.plain_p is not None for contrast in found)

    @property
    def other_metric(self) -> str:
        """The same loss in the other unit."""
        measures = TESTED.keys() if self.metric in TESTED else TESTED.values()
        return next(name for name in measures if name != self.metric)

    @property
    def scored(self) -> list[str]:
        """The scores of synthetic tasks that some row has."""
        return [name for name in SCORES if any(row.mean(name) is not None for row in self.rows)]

    @property
    def trial_metric(self) -> str:
        """What trials are compared by, which is never the test set."""
        return next((own for own, test in TESTED.items() if test == self.metric), self.metric)

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds behind any mean, 0 when there is none."""
        sides = [side for row in self.rows for side in (row.main, row.common) if side]
        return max((side.loss.n for side in sides if side.loss), default=0)

    @property
    def tested(self) -> bool:
        """Whether p-values are shown."""
        found = [item.contrast for item in self.comparisons if item.contrast]
        return any(c.adjusted_p is not None and c.n >= FEWEST_SEEDS for c in found)

    @property
    def undecided(self) -> list[str]:
        """The arms whose contrasts need more seeds, and their references."""
        pairs = [(c.arm, c.reference) for c in self.comparisons if c.verdict == MORE_SEEDS]
        return [row.arm for row in self.rows if any(row.arm in pair for pair in pairs)]

    def baseline_of(self, row: Row) -> Row | None:
        """The baseline that an arm is held against; None for one, and on another rung than it.

        Of a ladder the declared baseline stands on every rung.
        """
        study, name = self.sweep.study, self.baseline
        if study and name == study.baseline:
            name = study.baseline_of(row.arm)
        if row.arm == name or not self.same_rung(row.arm, name):
            return None
        return next(other for other in self.rows if other.arm == name)

    def same_rung(self, arm: str, other: str) -> bool:
        """Whether two arms are of one size and budget, as far as a ladder says."""
        study = self.sweep.study
        return study is None or study.rung_of(arm) == study.rung_of(other)

    @property
    def tune(self) -> Tuning | None:
        """The study's tuning, where arms are also shown at their own best setting."""
        return self.sweep.study.tune if self.sweep.study else None

    @cached_property
    def elsewhere(self) -> Elsewhere | None:
        """What the runs lose on other contexts, texts and tasks; None where nothing is asked."""
        return elsewhere(self.sweep, self.plan, {row.arm: row.runs for row in self.rows})


def build_table(sweep: Sweep, baseline: str | None = None, allow_mixed: bool = False) -> Table:
    """Summarise each arm and compare it with its reference.

    `baseline` None takes the study's, or the first declared arm. Raises `InputError` for a
    baseline that is not an arm of the sweep, and, unless `allow_mixed`, for runs that differ in
    data, code, evaluation or budget without meaning to.
    """
    chosen = baseline or sweep.baseline
    if chosen not in sweep.arms:
        [near] = difflib.get_close_matches(chosen, sweep.arms, n=1, cutoff=0.0)
        listed = ", ".join(repr(arm) for arm in sweep.arms[:12])
        more = f" and {len(sweep.arms) - 12} more" if len(sweep.arms) > 12 else ""
        raise InputError(
            f"No arm is called {chosen!r}; the arms are {listed}{more}; did you mean "
            f"--baseline {near!r}."
        )
    if not allow_mixed:
        refuse_mixed(sweep)
    primary = sweep.study.primary if sweep.study else "val_loss"
    metric = "bits_per_byte" if tokenizers_differ(sweep) else primary
    tuned = tuned_arms(sweep, metric)
    metric = TESTED[metric] if sweep.tested else metric
    plan = plan_contrasts(sweep, chosen, metric)
    tune = sweep.study.tune if sweep.study else None
    comparisons, main = _sides(sweep, TUNED if tune else REPORT, plan, tuned)
    common = _sides(sweep, REPORT, plan)[1] if tune else {}
    best = tune.chosen if tune else {}
    levels = arm_levels(sweep)
    rows = [
        Row(
            arm,
            levels.get(arm, ()),
            arm == chosen,
            main[arm],
            common.get(arm),
            best.get(arm),
            tuned.get(arm),
        )
        for arm in sweep.arms
    ]
    rows.sort(key=lambda row: _rank(row, sign_of(metric)))
    runs = {row.arm: row.runs for row in rows}
    axes = tuple(sweep.record.axes) if levels else ()
    return Table(
        sweep,
        chosen,
        axes,
        tuple(rows),
        plan,
        tuple(comparisons),
        _resolvable(plan, comparisons),
        allow_mixed,
        grid_effects(sweep, chosen, runs, metric),
        _published(sweep, plan, comparisons, runs),
        ladder_findings(sweep, comparisons, runs, metric, tuned),
    )


def arm_levels(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """Each arm's value on every axis; empty unless all arms set exactly the declared axes."""
    axes, levels = sweep.record.axes, {}
    for run in sweep.runs:
        if not axes or set(run.overrides) != set(axes):
            return {}
        levels[run.arm] = tuple(run.overrides[axis] for axis in axes)
    return levels if len(levels) == len(sweep.arms) else {}


def first_words(text: str, limit: int = ERROR_CHARACTERS) -> str:
    """The beginning of a text, cut between words and marked with dots when it is longer."""
    if len(text) <= limit:
        return text
    return text[: limit - 3].rsplit(" ", 1)[0] + "..."


def _sides(
    sweep: Sweep, role: str, plan: Plan, tuned: Mapping[str, Tuned] | None = None
) -> tuple[list[Comparison], dict[str, Side]]:
    """The contrasts of the runs with this role, and each arm's side of them."""
    runs: dict[str, list[Run]] = {arm: [] for arm in sweep.arms}
    for run in sweep.runs:
        if run.role == role:
            runs[run.arm].append(run)
    found = compare(plan, runs, sweep.complete, tuned)
    comparisons = with_text_noise(found, runs, plan.metric)
    sides = {}
    for arm in sweep.arms:
        # Of a seed that was trained twice, the last run counts.
        by_seed = {run.seed: run.value(plan.metric) for run in runs[arm]}
        values = [value for value in by_seed.values() if value is not None]
        mine = tuple(item for item in comparisons if item.arm == arm)
        sides[arm] = Side(tuple(runs[arm]), summarize(values), mine)
    return comparisons, sides


def _published(
    sweep: Sweep, plan: Plan, comparisons: Sequence[Comparison], runs: Mapping[str, Sequence[Run]]
) -> tuple[Finding, ...]:
    """The study's published claims with their verdicts."""
    if not (claims := sweep.study.published if sweep.study else []):
        return ()
    late = late_claims(sweep.ledger, [claim.rule for claim in claims])
    tune = sweep.study.tune if sweep.study else None
    trials = Trials(tune, sweep.trials) if tune else None
    return held_against(claims, late, plan, comparisons, runs, sweep.complete, trials)


def _resolvable(plan: Plan, comparisons: Sequence[Comparison]) -> float | None:
    """The smallest difference that every tested contrast would find; None without one."""
    found = [item.contrast for item in comparisons if item.contrast]
    tested = [(*c.deciding, c.n) for c in found if c.paired and c.adjusted_p is not None]
    known = [(error, degrees, n) for error, degrees, n in tested if error]
    if not known or not plan.confirmatory or plan.looks:
        return None
    error, degrees, n = max(known)
    alpha = ALPHA / len(plan.confirmatory)
    return smallest_resolvable(error * math.sqrt(n), n, alpha=alpha, degrees=degrees)


def _rank(row: Row, sign: int) -> tuple[int, float, float]:
    failed = sum(run.failing for run in row.runs)
    common = row.common.loss if row.common else None
    # While arms are being tuned there is no other loss to rank them by.
    behind = ranking_key(sign * common.mean if common else None, 0)[1]
    return (*ranking_key(sign * row.loss.mean if row.loss else None, failed), behind)
