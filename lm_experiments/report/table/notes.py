"""The sentences around a table: how complete it is, how to read it, and where it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from lm_experiments.report.collect import Run
from lm_experiments.report.statistics.power import POWER
from lm_experiments.report.statistics.verdicts import LEVEL
from lm_experiments.report.table.columns import EDGE, NOTHING, interval_text, p_text, within_text
from lm_experiments.report.table.comparable import count_text, short_hash
from lm_experiments.report.table.cost_notes import cost_notes
from lm_experiments.report.table.published import claim_notes
from lm_experiments.report.table.rows import Table, first_words
from lm_experiments.report.table.text_notes import text_notes
from lm_experiments.report.table.warnings import listed, warnings
from lm_experiments.rundir.ledger import taken_from
from lm_experiments.rundir.measures import UNITS, sign_of, zero_said
from lm_experiments.rundir.names import LOG
from lm_experiments.rundir.results import ENDED, FAILED, WAITING
from lm_experiments.rundir.study import FEWEST_SEEDS, Tuning
from lm_experiments.rundir.words import counted

ONE_SEED = (
    "One seed per arm: differences are exploratory and no arm is claimed to be better (n = 1). "
    "Add seed=0,1,2 to the command to measure the spread between seeds."
)
SOME_SINGLE = "Arms with n = 1 have no interval, and no claim can be made about them."
TWO_SEEDS = f"Below {FEWEST_SEEDS} seeds there is no verdict: differences are exploratory (n = 2)."
SEVERAL_SEEDS = (
    "sd is over seeds (ddof 1). +/- is the half-width of the 95 % t interval of the mean. "
    "Differences are paired over the seeds an arm shares with its reference; "
)
UNADJUSTED = "Intervals are not adjusted: one may leave out zero beside an unresolved verdict."
MODERATED = (
    "moderated paired t tests (variances shrunk towards the arms' mean, Smyth 2004; plain p beside)"
)
# The interval is that of the plain test, which covers 95 % whatever the arms' spreads.
PLAIN_INTERVALS = "They are of plain t tests, so one may also hold zero beside better or worse."
NO_VERDICTS = "No verdicts and no p-values before every run has finished."
DIRTY = "The code had uncommitted changes in every run, so the commit alone does not say what ran."
LISTED_FAILURES = 5
_LEVEL = f"{LEVEL:g}".lstrip("0")


def headline(table: Table) -> str:
    """One line on completeness, such as "12 arms, 36 of 36 runs finished (35 ok, 1 FAILED)."."""
    runs = list({run.directory: run for run in table.sweep.runs}.values())
    total = len(runs) + len(table.sweep.pending)
    finished = sum(run.finished for run in runs)
    outcomes = Counter(run.outcome for run in runs)
    outcomes[WAITING] += len(table.sweep.pending)
    counts = ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items() if n)
    arms = counted(len(table.rows), "arm")
    if not table.sweep.complete:
        return f"UNFINISHED: {finished} of {total} runs finished, {arms} ({counts})."
    return f"{arms}, {total} of {total} runs finished ({counts})."


def legend(table: Table) -> str:
    """What the columns are measured in."""
    measures = {"val_loss": "Validation loss", "test_loss": "Test loss"}
    measure = measures.get(table.metric, "The measure compared")
    best = "" if sign_of(table.metric) > 0 else "Higher is better. "
    held_out = "The test text was held out from training and from tuning, and measured once. "
    return (
        f"{measure} is in {UNITS[table.metric]}, the mean over an arm's usable runs; "
        "arms are sorted by it, those with failed runs last. It is of the weights after the last "
        f"step, whether or not an earlier validation was better. {best}"
        f"{held_out if table.metric != table.trial_metric else ''}FLOPs/token is for training."
    )


def notes(table: Table) -> list[str]:
    """The lines under the table: reading aid, rule, tuning, provenance, failures, warnings."""
    return [
        *_reading(table),
        *_rule(table),
        *_other_contrasts(table),
        *cost_notes(table),
        *claim_notes(table),
        *text_notes(table),
        *_tuning(table),
        *_provenance(table),
        *_failures(table),
        *warnings(table),
    ]


def run_ids(table: Table) -> list[str]:
    """For each arm, the directories of the runs its numbers come from."""
    names = {row.arm: dict.fromkeys(run.row.directory for run in row.known) for row in table.rows}
    return [f"{arm}: {', '.join(known) or 'none yet'}" for arm, known in names.items()]


def _reading(table: Table) -> list[str]:
    seeds = table.most_seeds
    if seeds == 0:
        return ["No run has a usable final loss yet."]
    lines = [ONE_SEED if seeds == 1 else f"{SEVERAL_SEEDS}{zero_said(table.metric)}."]
    if seeds == 2:
        lines.append(TWO_SEEDS)
    if seeds > 1 and any(row.loss and row.loss.n == 1 for row in table.rows):
        lines.append(SOME_SINGLE)
    if not any(row.is_baseline and (row.loss or not row.runs) for row in table.rows):
        lines.append(f"The baseline {table.baseline!r} has no usable run: no differences.")
    return lines


def _rule(table: Table) -> list[str]:
    if table.most_seeds < 2 or not table.comparisons:
        return []
    if not table.sweep.complete:
        return [NO_VERDICTS]
    if table.most_seeds < FEWEST_SEEDS:
        return []
    declared = [*_declared(table), *_looks(table)] if table.plan.confirmatory else []
    return [*declared, *_exploratory(table)]


def _declared(table: Table) -> list[str]:
    """The tests of the contrasts that were declared before results were shown."""
    family, margin = table.plan.family, table.plan.margin
    size = "one contrast" if family == 1 else f"{family} contrasts, adjusted after Holm"
    text = f"Verdicts: two-sided {_tests(table, table.plan.confirmatory)} at {_LEVEL} over {size}"
    if margin is not None:
        text += (
            f"; equivalent is within {margin:g} {UNITS[table.metric]} "
            "(two one-sided tests, adjusted likewise: the equivalence interval lies within the "
            "margin), which goes before better and worse"
        )
    plain = f" {PLAIN_INTERVALS}" if table.moderates(table.plan.confirmatory) else ""
    lines = [f"{text}. An arm with a failed run gets no other verdict. {UNADJUSTED}{plain}"]
    if table.resolvable is not None:
        share = f"{_LEVEL} / {family}" if family > 1 else _LEVEL
        lines.append(
            f"The smallest difference these seeds would find (power {POWER:g} at {share}), from "
            f"the largest error of the paired differences: {table.resolvable:.4f} "
            f"{UNITS[table.metric]}."
        )
    return lines


def _looks(table: Table) -> list[str]:
    """How a study spends its seeds where it does so by rule."""
    if not (looks := table.plan.looks):
        return []
    counts = ", ".join(map(str, looks))
    lines = [
        f"Seeds by rule: looks after {counts} seeds share the {_LEVEL} by their new seeds, and "
        "only undecided arms and their references get more, so means are over different seeds. p "
        "is scaled to the look's share, and the interval is the one at the look that decided."
    ]
    if table.undecided:
        arms = listed(table.undecided)
        lines.append(f"Undecided so far: {arms}; the command of this study goes on.")
    return lines


def _exploratory(table: Table) -> list[str]:
    """The contrasts that get no verdict, by the reason for it."""
    by_reason: dict[str, list[str]] = {}
    for (arm, reference), reason in table.plan.exploratory.items():
        by_reason.setdefault(reason, []).append(f"{arm} against {reference}")
    if not by_reason:
        return []
    whole = not table.plan.confirmatory
    reasons = [
        reason if whole and len(by_reason) == 1 else f"{reason} ({listed(pairs)})"
        for reason, pairs in by_reason.items()
    ]
    family = table.plan.all_pairs
    over = f", adjusted after Holm over all {family} pairs of arms" if family > 1 else ""
    return [
        f"Exploratory: {'; '.join(reasons)}. There are no verdicts on these, and p is of two-sided "
        f"{_tests(table, table.plan.exploratory)}{over}."
    ]


def _tests(table: Table, pairs: Iterable[tuple[str, str]]) -> str:
    return MODERATED if table.moderates(pairs) else "paired t tests"


def _other_contrasts(table: Table) -> list[str]:
    """Contrasts of arms that are compared with more than one reference."""
    first = {id(row.comparison) for row in table.rows}
    lines = []
    for item in (item for item in table.comparisons if id(item) not in first):
        numbers, found = "", item.contrast
        if found:
            p = f", p {p_text(found.adjusted_p)}" if found.adjusted_p is not None else ""
            within = within_text(item)
            decides = "" if within == NOTHING else f", equivalence interval {within}"
            numbers = f"{found.mean:+.4f} {interval_text(found)}{p}{decides}, "
        lines.append(f"{item.arm} against {item.reference}: {numbers}{item.verdict}.")
    return lines


def _tuning(table: Table) -> list[str]:
    tuning, trials = table.tune, table.sweep.trials
    if tuning is None:
        return []
    if not tuning.chosen:
        finished = sum(run.over for run in trials)
        return [f"Tuning of {tuning.key} is UNFINISHED: {finished} of {len(trials)} trials so far."]
    edges = [row.arm for row in table.rows if row.chosen and row.chosen.edge]
    lines = [f"Tuned for every arm alone: {tuning.key} over {_budget(tuning, trials)}."]
    at_rung = ""
    if ended := sum(run.status == ENDED for run in trials):
        at_rung = " as it was at the first rung, the last that all values reached"
        lines.append(
            f"Halving ended {ended} of {len(trials)} trials, the worse half of each arm's values "
            "at an eighth and at half of the steps; none of them is compared with a whole run."
        )
    if any(row.tuned and row.tuned.noise for row in table.rows):
        lines.append(
            f"Intervals and p at own best hold the noise of the choice{at_rung}, from resampled "
            "tuning seeds."
        )
    if any(row.tuned and row.tuned.sensitivity is not None for row in table.rows):
        lines.append(
            "Sensitivity is the mean loss over the grid less the best, in nats per token, with a "
            "failed trial at its initial loss (Wortsman et al. 2023)."
        )
    if edges:
        lines.append(
            f"{EDGE} marks a best value at the edge of the grid; beyond it the arm may do better: "
            f"{listed(edges)}. Its contrasts have no verdict; widen study.tune.grid, or raise "
            "study.tune.limit."
        )
    return lines


def _budget(tuning: Tuning, runs: Sequence[Run]) -> str:
    per_arm = sorted(set(Counter(run.arm for run in runs).values())) or [tuning.trials]
    number = " to ".join(dict.fromkeys(str(n) for n in (per_arm[0], per_arm[-1])))
    every = " each" if len(per_arm) > 1 else " for each arm"
    seeds = ", ".join(map(str, tuning.seeds))
    grid = ", ".join(f"{value:g}" for value in tuning.grid)
    tokens = sorted({run.result.tokens for run in runs if run.usable and run.result.tokens})
    length = f" of {listed(f'{n:,.0f}' for n in tokens)} tokens" if tokens else ""
    return f"{grid} with seed {seeds}: {number} trials{every}{length}, chosen by mean loss"


def _provenance(table: Table) -> list[str]:
    runs = [run for run in table.sweep.runs if run.usable]
    if not runs:
        return []
    facts = {"seeds": [str(seed) for seed in sorted({run.seed for run in table.sweep.runs})]}
    for name, text in _FACTS.items():
        values = {value for run in runs if (value := text(run)) is not None}
        # By length first, so that numbers ascend.
        facts[name] = sorted(values, key=lambda value: (len(value), value))
    line = "; ".join(f"{name} {listed(values)}" for name, values in facts.items() if values)
    dirty = all(run.commit and run.commit.endswith("+dirty") for run in runs)
    return [f"{line[:1].upper()}{line[1:]}.", *([DIRTY] if dirty else []), *_taken(table)]


def _taken(table: Table) -> list[str]:
    """How many runs were trained for other sweeps, and which."""
    here = {run.row.directory for run in (*table.sweep.runs, *table.sweep.trials)}
    origins: dict[str, set[str]] = {}
    for taken in taken_from(table.sweep.ledger):
        origins.setdefault(taken.folder, set()).update(here & taken.runs.keys())
    found = [f"{len(names)} from {folder}" for folder, names in origins.items() if names]
    return [f"Of {len(here)} runs, taken from other sweeps: {listed(found)}."] if found else []


def _matched(run: Run) -> str | None:
    match, tolerance = run.result.match, run.result.match_tolerance
    if match is None or tolerance is None or match == "none":
        return match
    return f"on {match} (within {100 * tolerance:g} %)"


# What the usable runs share, or differ in.
_FACTS: Mapping[str, Callable[[Run], str | None]] = {
    "steps": lambda run: count_text(run.result.steps),
    "training tokens": lambda run: count_text(run.result.tokens),
    "validation tokens": lambda run: count_text(run.result.val_tokens),
    "test tokens": lambda run: count_text(run.result.test_tokens),
    "evaluation context": lambda run: count_text(run.result.eval_context),
    "matched": _matched,
    "data": lambda run: short_hash(run.result.data_hash),
    "tokenizer": lambda run: short_hash(run.result.tokenizer_hash),
    "commit": lambda run: short_hash(run.commit),
    "threads": lambda run: count_text(run.result.threads),
    "device": lambda run: run.result.device,
}


def _failures(table: Table) -> list[str]:
    failing = list({run.directory: run for run in table.sweep.runs if run.failing}.values())
    crashed = [run for run in failing if run.status == FAILED]
    lines = []
    for run in crashed[:LISTED_FAILURES]:
        reason = first_words(run.error or "no error recorded", 160)
        log = f"{run.row.directory}/{LOG}"
        lines.append(f"FAILED {run.arm} seed {run.seed}: {reason} (see {log})")
    if len(crashed) > len(lines):
        lines.append(f"{len(crashed) - len(lines)} more runs FAILED.")
    ends: dict[str, list[str]] = {}
    for run in failing:
        if run.status != FAILED:
            ends.setdefault(f"{run.arm} {run.outcome}", []).append(_ending(run))
    return [*lines, *(f"{end}: {listed(runs, LISTED_FAILURES)}." for end, runs in ends.items())]


def _ending(run: Run) -> str:
    step = f" at step {run.result.outcome_step:,.0f}" if run.result.outcome_step is not None else ""
    setting = "".join(f" {key}={value:g}" for key, value in run.setting.items())
    return f"seed {run.seed}{setting}{step}"
