"""Turn runs into the rows of a table: one per arm, with statistics over its seeds."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lm_experiments.report.collect import ReportError, Run, Sweep
from lm_experiments.report.statistics import Summary, paired_difference, summarize

ERROR_CHARACTERS = 60


@dataclass(frozen=True)
class Row:
    """One arm: `levels` are its values on the table's axes; losses are in nats per token."""

    arm: str
    levels: tuple[str, ...]
    is_baseline: bool
    runs: tuple[Run, ...]
    loss: Summary | None
    difference: Summary | None

    @property
    def usable(self) -> tuple[Run, ...]:
        """The runs whose final loss is in the mean."""
        return tuple(run for run in self.runs if run.usable)

    def first(self, name: str) -> float | None:
        """A number that is the same for all runs of an arm, from the first run that knows it."""
        return next((v for run in self.runs if (v := getattr(run, name)) is not None), None)

    def mean(self, name: str) -> float | None:
        """A measured number, averaged over the usable runs that have it."""
        values = [v for run in self.usable if (v := getattr(run, name)) is not None]
        summary = summarize(values)
        return None if summary is None else summary.mean

    @property
    def outcome(self) -> str:
        """What became of the runs: "ok", "2 of 3 ok, 1 diverged", "FAILED: the error"."""
        counts = Counter(run.verdict for run in self.runs)
        total = len(self.runs)
        if len(counts) > 1:
            others = [f"{n} {verdict}" for verdict, n in counts.items() if verdict != "ok"]
            return ", ".join([f"{counts['ok']} of {total} ok", *others])
        (verdict,) = counts
        error = next((run.error for run in self.runs if run.error), None)
        count = "" if total == 1 or verdict == "ok" else f" ({total} of {total})"
        reason = f": {first_words(error)}" if verdict == "FAILED" and error else ""
        return f"{verdict}{count}{reason}"


@dataclass(frozen=True)
class Table:
    """Rows sorted by mean loss, arms without one last; `axes` is empty when labels are used."""

    sweep: Sweep
    baseline: str
    axes: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds behind any mean, 0 when there is none."""
        return max((row.loss.n for row in self.rows if row.loss), default=0)


def build_table(sweep: Sweep, baseline: str | None = None) -> Table:
    """Summarise each arm and compare it with `baseline` (the first declared arm if None).

    Raises `ReportError` for a baseline that is not an arm of the sweep.
    """
    chosen = sweep.arms[0] if baseline is None else baseline
    if chosen not in sweep.arms:
        raise ReportError(_unknown_baseline(chosen, sweep.arms))
    runs: dict[str, list[Run]] = {arm: [] for arm in sweep.arms}
    for run in sweep.runs:
        runs[run.arm].append(run)
    reference = _loss_by_seed(runs[chosen])
    levels = arm_levels(sweep)
    rows = [_row(arm, levels.get(arm, ()), runs[arm], chosen, reference) for arm in sweep.arms]
    rows.sort(key=lambda row: row.loss.mean if row.loss else float("inf"))
    return Table(sweep, chosen, sweep.axes if levels else (), tuple(rows))


def arm_levels(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """Each arm's value on every axis; empty unless all arms set exactly the declared axes."""
    levels = {}
    for run in sweep.runs:
        given = dict(item.lstrip("+").partition("=")[::2] for item in run.overrides)
        if not sweep.axes or set(given) != set(sweep.axes):
            return {}
        levels[run.arm] = tuple(given[axis] for axis in sweep.axes)
    return levels


def first_words(text: str, limit: int = ERROR_CHARACTERS) -> str:
    """The beginning of a text, cut between words and marked with dots when it is longer."""
    if len(text) <= limit:
        return text
    return text[: limit - 3].rsplit(" ", 1)[0] + "..."


def _row(
    arm: str,
    levels: tuple[str, ...],
    runs: Sequence[Run],
    baseline: str,
    reference: Mapping[int, float],
) -> Row:
    loss = summarize(run.val_loss for run in runs if run.usable and run.val_loss is not None)
    is_baseline = arm == baseline
    difference = None if is_baseline else paired_difference(_loss_by_seed(runs), reference)
    return Row(arm, levels, is_baseline, tuple(runs), loss, difference)


def _loss_by_seed(runs: Sequence[Run]) -> dict[int, float]:
    return {run.seed: run.val_loss for run in runs if run.usable and run.val_loss is not None}


def _unknown_baseline(name: str, arms: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, arms, n=1, cutoff=0.0)
    listed = ", ".join(repr(arm) for arm in arms[:12])
    more = f" and {len(arms) - 12} more" if len(arms) > 12 else ""
    hint = f"; did you mean --baseline {near[0]!r}" if near else ""
    return f"No arm is called {name!r}; the arms are {listed}{more}{hint}."
