"""Prints the plan before training: arms, sizes, warnings, and the estimated time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import torch

from lm_experiments.data import overlap_lines
from lm_experiments.launch.launcher import BASIC, Launcher
from lm_experiments.report.table.columns import si
from lm_experiments.report.time_left import Pace, Timing, last_end, whole_seconds
from lm_experiments.rundir.results import DONE, OVER
from lm_experiments.rundir.study import TUNE, Study
from lm_experiments.rundir.words import aligned, counted, duration
from lm_experiments.source import training_hash
from lm_experiments.study import checks
from lm_experiments.study.estimate import Estimates
from lm_experiments.study.fairness import fairness, scaled
from lm_experiments.study.halving import share_of
from lm_experiments.study.plan import PlannedRun, corpus_of, distinct
from lm_experiments.study.rungs import ladder_lines
from lm_experiments.training.devices import find_device

HEADER = ("arm", "parameters", "vs baseline", "ffn width", "FLOPs/token", "tokens")
BUDGET_HEADER = ("steps", "FLOPs")
START_HEADER = ("loss at start", "expected", "gradient norm by block")
SHOWN_ARMS = 4
MOST_ROWS = 24
# In standard deviations of one run.
CLEAR_EFFECT = 4.0


def preview(
    runs: Sequence[PlannedRun],
    study: Study | None,
    launcher: Launcher | None,
    estimates: Estimates,
    only: bool,
) -> bool:
    """Print the plan, and check what a declared study must hold to; return whether to train.

    A single run has no launcher. The models to be trained are timed for ``estimates``. With
    ``only``, the whole plan is printed, also where nothing is left to train, and nothing is
    trained. Where an arm of a study changes nothing, it is an InputError.
    """
    # The first run of each arm, at the setting it is reported at.
    arms = {run.config.arm: run for run in reversed(runs) if run.spec.role != TUNE}
    arms = dict(reversed(arms.items()))
    waiting = [run for run in distinct(runs) if run.status not in OVER]
    starts: dict[str, checks.Start] = {}
    references = {arm: study.baseline_of(arm) if study else next(iter(arms)) for arm in arms}
    if study is not None:
        checks.check_distinct(arms)
        checks.check_primary(arms, study.primary)
        checks.check_evaluated(arms, study.evaluate)
    if study is not None and (waiting or only):
        starts = checks.look_at_starts(arms)
        checks.check_differences(arms, starts, references)
    unchanged = checks.find_unchanged(arms) if study is None and (waiting or only) else {}
    budget = BUDGET_HEADER if scaled(arms) else ()
    header = (*HEADER, *budget, *(START_HEADER if starts else ()))
    rows = [header, *_rows(arms, shown(references, study), starts)]
    for line in [
        *aligned(rows, numbers=True),
        *ladder_lines(runs, study),
        *fairness(arms, study),
        *_overlaps(arms),
        *_tuned_on_what_is_reported(arms, study),
        *_remarks(arms, starts, unchanged),
        *_by_rule(study, launcher),
        *_by_halving(runs, study),
        *_evaluated(study),
        *_other_code(runs, waiting),
        *_logging(runs, waiting, launcher),
    ]:
        print(line)
    print(_resources(runs, launcher))
    print(
        f"{_counts(runs, waiting)}{_time(runs, waiting, study, launcher, estimates, only)}.",
        flush=True,
    )
    return not only


def shown(references: Mapping[str, str], study: Study | None) -> Mapping[str, str]:
    """Return the arms that get a row, by arm its reference: of a long ladder, the largest rung."""
    if study is None or study.ladder is None or len(references) <= MOST_ROWS:
        return references
    return {arm: references[arm] for arm in study.ladder.rungs[-1].arms.values()}


def _rows(
    arms: Mapping[str, PlannedRun],
    references: Mapping[str, str],
    starts: Mapping[str, checks.Start],
) -> list[tuple[str, ...]]:
    """Return a row for each arm; of many arms, one for all that are equal in every column."""
    rows = [_row(arms, reference, arm, starts) for arm, reference in references.items()]
    if len(rows) <= MOST_ROWS:
        return rows
    alike: dict[tuple[str, ...], list[str]] = {}
    for arm, *cells in rows:
        alike.setdefault(tuple(cells), []).append(arm)
    return [
        (f"{named[0]} and {len(named) - 1} more" if len(named) > 1 else named[0], *cells)
        for cells, named in alike.items()
    ]


def _row(
    arms: Mapping[str, PlannedRun], reference: str, arm: str, starts: Mapping[str, checks.Start]
) -> tuple[str, ...]:
    ledger = arms[arm].ledger
    difference = ledger.parameters / arms[reference].ledger.parameters - 1
    sizes = (
        arm,
        f"{ledger.parameters:,}",
        "baseline" if arm == reference else f"{difference:+.2%}",
        f"{ledger.ffn_width:,}",
        f"{ledger.training_flops_per_token / 1e6:,.2f}M",
        f"{arms[arm].config.tokens:,}",
        *_budget(arms[arm], scaled(arms)),
    )
    if not starts:
        return sizes
    start = starts[arm]
    blocks = [norm for part, norm in start.gradients.items() if part.startswith("block")]
    return (
        *sizes,
        f"{start.loss:.3f}",
        "-" if start.expected is None else f"{start.expected:.3f}",
        f"{blocks[0]:.2f} first, {blocks[-1]:.2f} last",
    )


def _budget(run: PlannedRun, shown: bool) -> tuple[str, ...]:
    return (f"{run.config.trainer.max_steps:,}", si(run.flops)) if shown else ()


def _overlaps(arms: Mapping[str, PlannedRun]) -> list[str]:
    """Return what of the held-out text occurs in training, with the arms where they differ."""
    by_line: dict[str, list[str]] = {}
    for arm, run in arms.items():
        corpus = corpus_of(run.config)
        for line in overlap_lines(corpus.overlaps, corpus.held_out):
            by_line.setdefault(line, []).append(arm)
    return [
        f"{line}." if len(named) == len(arms) else f"{line} ({_some(named)})."
        for line, named in by_line.items()
    ]


def _tuned_on_what_is_reported(arms: Mapping[str, PlannedRun], study: Study | None) -> list[str]:
    """Return the remark that tuning favours what it chose, where no test text is held out."""
    corpora = [run.config.data for run in arms.values()]
    if study is None or study.tune is None or all("test" in data.parts for data in corpora):
        return []
    remedy = "; type data.test_fraction=0.05 to report the loss on text held out from both"
    no_text = not all(data.has_text for data in corpora)
    key = study.tune.key
    return [f"{key} is chosen on the validation text that is reported{'' if no_text else remedy}."]


def _evaluated(study: Study | None) -> list[str]:
    """Return what the trained runs are measured on besides, which the time leaves out."""
    if study is None or study.evaluate is None:
        return []
    titles = ", ".join(each.title for each in study.evaluate.asked)
    return [f"Trained runs are then measured on {titles}, which the time below leaves out."]


def _some(arms: Sequence[str]) -> str:
    more = f" and {len(arms) - SHOWN_ARMS} more" if len(arms) > SHOWN_ARMS else ""
    return f"{', '.join(arms[:SHOWN_ARMS])}{more}"


def _remarks(
    arms: Mapping[str, PlannedRun],
    starts: Mapping[str, checks.Start],
    unchanged: Mapping[str, str],
) -> list[str]:
    """Return the warnings, each once, with the arms it applies to."""
    by_text: dict[str, list[str]] = {}
    for arm, run in arms.items():
        texts, start = checks.warnings(run.config), starts.get(arm)
        if start and start.fails:
            texts.append(
                "the loss or a gradient is not finite before the first step: fails at init"
            )
        elif start and start.expected is not None and abs(start.loss - start.expected) > 0.5:
            expected = f"{start.expected:.2f} nats"
            texts.append(f"starts far from the {expected} its initialisation should give")
        if other := unchanged.get(arm):
            texts.append(f"identical: changes nothing, as it starts just as {other!r}")
        for text in texts:
            by_text.setdefault(text, []).append(arm)
    return [f"warning: {text} ({_some(named)})." for text, named in by_text.items()]


def _by_rule(study: Study | None, launcher: Launcher | None) -> list[str]:
    """Return what a rule for seeds costs at the most, and where effects are clear or absent.

    Its waves train side by side; where the last ones leave places free, that is said too.
    """
    if study is None or not study.looks:
        return []
    # Imported here because most sweeps have no rule.
    from lm_experiments.report.statistics.sequential import Rule, expected_runs

    rule, others = Rule(tuple(study.looks)), len(study.arms) - 1
    clear, none = (expected_runs(rule, [effect] * others, sd=1.0) for effect in (CLEAR_EFFECT, 0.0))
    looks = ", ".join(map(str, study.looks))
    lines = [
        f"seeds by rule: only undecided arms go on after {looks} seeds; at most {none.largest} "
        f"runs to compare, {clear.expected:.0f} expected where every arm differs by "
        f"{CLEAR_EFFECT:g} sds of a run, {none.expected:.0f} where none differs."
    ]
    # An arm goes on together with its reference.
    smallest = 2 * (study.looks[1] - study.looks[0]) if len(study.looks) > 1 else math.inf
    places = launcher.at_once if launcher is not None else None
    if places is not None and smallest < places:
        lines.append(
            f"seeds by rule: the smallest wave is {smallest} runs and {places} train at once; with "
            f"more: {places // 2} a wave takes no longer."
        )
    return lines


def _by_halving(runs: Sequence[PlannedRun], study: Study | None) -> list[str]:
    """Return what tuning by halving costs, the same for every arm."""
    if study is None or study.tune is None or not study.tune.halving:
        return []
    trials = [run.config.trainer.max_steps for run in runs if run.spec.role == TUNE]
    steps = " or ".join(
        f"{first:,} and {second:,} of {most:,}"
        for most in sorted(set(trials))
        for first, second in [study.tune.rungs(most)]
    )
    share = max(map(study.tune.budget, trials))
    return [
        f"tuning by halving: {counted(len(trials), 'trial')}, of which the worse half of each "
        f"arm's values ends after step {steps}: {share:.0%} of {len(trials)} full budgets, alike "
        "for all arms."
    ]


def _other_code(runs: Sequence[PlannedRun], waiting: Sequence[PlannedRun]) -> list[str]:
    """Return the warning that finished runs are of another program than those to be trained."""
    done = [run.result for run in runs if run.result and run.status == DONE]
    others = [result for result in done if result.code_hash not in (None, training_hash())]
    if not others or not waiting:
        return []
    commits = dict.fromkeys(
        f"{r.commit or 'unknown'}"[:12] + "+dirty" * bool(r.dirty) for r in others
    )
    return [
        f"warning: {len(others)} of the {len(done)} runs done already were trained by other code "
        f"(commit {', '.join(commits)}), and one table does not hold both; go back to that code, "
        "or type name=... to train all with this one."
    ]


def _logging(
    runs: Sequence[PlannedRun], waiting: Sequence[PlannedRun], launcher: Launcher | None
) -> list[str]:
    """Return where the runs are logged beside their directories."""
    slots = launcher.at_once if launcher is not None else 1
    at_once = len(waiting) if slots is None else min(slots, len(waiting))
    sweep = runs[0].directory.parent.name
    return [line for part in runs[0].config.logger.parts for line in part.plan(sweep, at_once)]


def _counts(runs: Sequence[PlannedRun], waiting: Sequence[PlannedRun]) -> str:
    count = len(distinct(runs))
    arms = len({run.config.arm for run in runs})
    seeds = sorted({run.config.seed for run in runs})
    text = f"{counted(count, 'run')}: {counted(arms, 'arm')}, "
    whole = len(seeds) > SHOWN_ARMS and seeds == list(range(seeds[0], seeds[-1] + 1))
    listed = f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))
    text += f"seed{'s' if len(seeds) > 1 else ''} {listed}"
    if repeated := len(runs) - count:
        text += f" ({repeated} more are the same run as one of these: counted once)"
    sources = Counter(str(run.source.parent) for run in distinct(runs) if run.source)
    taken = "".join(f"{number:,} taken from {folder}, " for folder, number in sources.items())
    done = count - len(waiting) - sources.total()
    return f"{text}; {done:,} done already, {taken}{len(waiting):,} to train"


def _resources(runs: Sequence[PlannedRun], launcher: Launcher | None) -> str:
    """Return what the runs are trained on: how many at once, device, threads, precision."""
    found = [find_device(run.config) for run in runs]
    types = {device.type for device in found}
    threads = {run.config.trainer.threads or torch.get_num_threads() for run in runs}
    counts = f"{_or(threads)} thread{'' if threads == {1} else 's'}"
    numbers = f"in {_or({device.precision for device in found})}"
    numbers += ", compiled" if all(device.compile for device in found) else ""
    share = launcher.share if launcher is not None else None
    how = "one run after another" if len(runs) > 1 else "one run"
    if launcher is not None and share is not None and launcher.kind != BASIC:
        how = f"hydra/launcher={launcher.kind}: {share.text.rstrip('.')}"
        if launcher.is_remote:
            # What this machine has says nothing of a cluster's.
            types = {"cuda" if share.gpus else "cpu"}
    elif share is not None and share.slots > 1:
        each = [*([counted(share.gpus, "GPU")] if share.gpus else []), counts]
        at_once = f"{counted(share.slots, 'run')} at once, {' and '.join(each)} each"
        return f"{at_once}, on {_or(types)} {numbers}; {share.room}."
    return f"{how}; on {_or(types)} with {counts}, {numbers}."


def _or(values: Iterable[object]) -> str:
    return " or ".join(sorted(map(str, values)))


def _time(
    runs: Sequence[PlannedRun],
    waiting: Sequence[PlannedRun],
    study: Study | None,
    launcher: Launcher | None,
    estimates: Estimates,
    only: bool,
) -> str:
    """Return how long the runs take together; nothing for a run that is about to be started."""
    if not waiting or (len(waiting) == 1 and not only):
        return ""
    estimates.time(waiting)
    done = [(run, taken) for run in distinct(runs) if (taken := whole_seconds(run.result))]
    pace = Pace([Timing(run.config.arm, estimates.seconds(run), taken) for run, taken in done])
    tune = study.tune if study else None
    seconds = [
        _left(run, pace.seconds(run.config.arm, estimates.seconds(run))) * share_of(run, tune)
        for run in waiting
    ]
    if not all(seconds):
        return ""
    share = launcher.share if launcher is not None else None
    slots = share.slots if share is not None else 1
    total = estimates.first_start + last_end([], seconds, slots)
    text = f", in about {duration(total)}"
    if share is None:
        return text
    text += f", {min(slots, len(seconds))} at once" if slots > 1 else ""
    if share.gpus:
        text += f": {sum(seconds) * share.gpus / 3600:,.2f} GPU-hours"
    remote = launcher is not None and launcher.is_remote
    return text + (", if its machines are as fast as this one" if remote else "")


def _left(run: PlannedRun, whole: float | None) -> float:
    """Return what is left of a run by the seconds of the whole, 0 where these are not known."""
    steps = max((run.result and run.result.steps) or 0, run.begins)
    return (whole or 0.0) * (1 - steps / run.config.trainer.max_steps)
