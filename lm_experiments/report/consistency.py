"""What a reviewer asks of a sweep's folder, answered from what its files say of each other."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_experiments.report.collect import Run, Sweep
from lm_experiments.report.statistics.compare import plan_contrasts
from lm_experiments.report.table.comparable import Difference, differences, short_hash
from lm_experiments.rundir.ledger import DECLARED, broken_links, declaration_of
from lm_experiments.rundir.live import max_steps_of
from lm_experiments.rundir.metrics import last_rows
from lm_experiments.rundir.names import METRICS
from lm_experiments.rundir.results import CUT_SHORT, DONE
from lm_experiments.rundir.study import TUNE
from lm_experiments.rundir.words import counted

YES, NO, NOT_KNOWN = "yes", "no", "not known"
# Faults of one kind that are spelt out.
SHOWN = 3
# A sum of float32 numbers, batch by batch, and one by document round apart by less.
ROUNDING = 1e-6

_TEXT = ("data_hash", "tokenizer_hash", "eval_context", "val_tokens")


@dataclass(frozen=True)
class Answer:
    """One question: `answer` is one of YES, NO, NOT_KNOWN, and `detail` says what it rests on."""

    question: str
    answer: str
    detail: str


def answer_of(question: str, faults: Sequence[str], unknown: Sequence[str], good: str) -> Answer:
    """Return NO where there are faults, else NOT_KNOWN where something is, else YES."""
    if faults or unknown:
        shown = list(faults or unknown)
        more = f"; {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
        return Answer(question, NO if faults else NOT_KNOWN, "; ".join(shown[:SHOWN]) + more)
    return Answer(question, YES, good)


def runs_of(sweep: Sweep) -> list[Run]:
    """Return all planned runs, the trials of tuning included, each directory once."""
    return list({run.directory: run for run in (*sweep.runs, *sweep.trials)}.values())


def trained(sweep: Sweep) -> list[Run]:
    """Return the runs that have a final loss which may be averaged."""
    return [run for run in runs_of(sweep) if run.usable]


def all_planned(sweep: Sweep) -> Answer:
    """Whether every planned run is there and has ended, and no other run lies beside them."""
    runs = runs_of(sweep)
    faults = [f"{arm} s{seed} is declared and not planned" for arm, seed, _ in sweep.pending]
    faults += [f"{run.directory.name} is {run.status}" for run in runs if not run.over]
    faults += [f"{path.name} is not in sweep.json" for path in sweep.extra]
    counts = Counter(run.outcome for run in runs)
    ended = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return answer_of("all planned runs, and no others", faults, [], f"{len(runs)} runs: {ended}")


def whole_results(sweep: Sweep) -> Answer:
    """Whether each ``result.json`` is of its own run, complete, and at one with its metrics."""
    runs = [run for run in runs_of(sweep) if run.status == DONE]
    faults = [f"{run.directory.name} {fault}" for run in runs for fault in _faults(run)]
    return answer_of("each result.json whole and its run's own", faults, [], f"{len(runs)} runs")


def _faults(run: Run) -> Iterable[str]:
    row, result = run.row, run.result
    if (result.seed, result.config_hash) != (row.seed, row.config_hash or result.config_hash):
        planned = f"seed {row.seed}, hash {short_hash(row.config_hash)}"
        yield f"has seed {result.seed}, hash {short_hash(result.config_hash)}, planned: {planned}"
    wanted = ("outcome", "steps", "config_hash", "data_hash", "val_loss", "val_tokens")
    if missing := [name for name in wanted if getattr(result, name) is None]:
        yield f"lacks {', '.join(missing)}"
        return
    budget = max_steps_of(run.directory)
    if result.outcome not in CUT_SHORT and result.steps != budget:
        yield f"has made {result.steps} of {budget} steps"
    loss = result.val_loss
    assert loss is not None
    said = {"metrics.jsonl": _last_loss(run), "its perplexity": _log(result.perplexity)}
    for source, other in said.items():
        if other is not None and math.isfinite(loss) and abs(other - loss) > ROUNDING:
            yield f"has a loss of {loss!r}, and {other!r} by {source}"


def _last_loss(run: Run) -> float | None:
    """Return the last loss over the whole set; without such a row, the curve is over all of it."""
    newest: dict[str, float] = {}
    for row in last_rows(run.directory / METRICS):
        newest |= row
    return newest.get("whole/loss", newest.get("val/loss"))


def _log(perplexity: float | None) -> float | None:
    finite = perplexity is not None and 0 < perplexity < math.inf
    return math.log(perplexity) if finite and perplexity else None


def documents_add_up(sweep: Sweep) -> Answer:
    """Whether the losses of the documents of each run add up to its loss."""
    faults, unknown = [], []
    for run in trained(sweep):
        losses, result = run.documents, run.result
        if losses is None:
            unknown.append(f"{run.directory.name} has no documents.npz")
            continue
        tokens, loss = int(losses.tokens.sum()), result.reported_loss or math.nan
        mean = float(losses.sums.sum()) / max(1, tokens)
        if tokens != result.reported_tokens or not abs(mean - loss) <= ROUNDING * max(1.0, loss):
            faults.append(
                f"{run.directory.name}: {mean!r} over {tokens:,} tokens by its documents, "
                f"{loss!r} over {result.reported_tokens:,} in result.json"
            )
    good = f"{len(trained(sweep))} runs"
    return answer_of("documents.npz adds up to the loss", faults, unknown, good)


def same_text(sweep: Sweep) -> Answer:
    """Whether all runs have one text, tokenizer and context of evaluation, but for their arms."""
    found = [difference for difference in differences(sweep) if difference.shared.name in _TEXT]
    return _shared("the same text, tokenizer and validation", sweep, found, "data_hash")


def same_code(sweep: Sweep) -> Answer:
    """Whether all runs were made by one program."""
    found = [difference for difference in differences(sweep) if difference.shared.name == "code"]
    return _shared("the same code", sweep, found, "code")


def same_settings(sweep: Sweep) -> Answer:
    """Whether runs differ in nothing that their arms do not change."""
    apart = (*_TEXT, "code")
    found = [each for each in differences(sweep) if each.shared.name not in apart]
    good = "runs differ in what their arms change alone"
    faults, unknown = _accidents(found), _nameless(sweep, "config_hash")
    return answer_of("the same settings and budget, but for the arms'", faults, unknown, good)


def _shared(question: str, sweep: Sweep, found: Sequence[Difference], fact: str) -> Answer:
    hashes = dict.fromkeys(short_hash(run.fact(fact)) for run in trained(sweep))
    good = f"{fact} {' and '.join(map(str, hashes))}" + ("; as the arms declare" if found else "")
    return answer_of(question, _accidents(found), _nameless(sweep, fact), good)


def _accidents(found: Sequence[Difference]) -> list[str]:
    return [
        f"{each.shared.name} is "
        + ", ".join(f"{value} in {runs[0].directory.name}" for value, runs in each.groups.items())
        for each in found
        if not each.on_purpose
    ]


def _nameless(sweep: Sweep, fact: str) -> list[str]:
    nameless = [run.directory.name for run in trained(sweep) if run.fact(fact) is None]
    return [f"{name} does not say its {fact}" for name in nameless]


def seeds_as_declared(sweep: Sweep) -> Answer:
    """Whether each arm has each declared seed once; without a declaration, all arms the same."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for run in (*sweep.runs, *sweep.trials):
        setting = sorted(run.setting.items())
        groups.setdefault((run.role, run.arm, *setting), []).append(run.seed)
    study = sweep.study
    report = sorted(study.seeds) if study else sorted(next(iter(groups.values()), []))
    # By rule an arm has the seeds up to one of the looks.
    by_rule = [sorted(study.seeds[:count]) for count in study.looks] if study else []
    trials = sorted(study.tune.seeds) if study and study.tune else []
    faults = []
    for (role, arm, *setting), seeds in groups.items():
        wanted = trials if role == TUNE else report
        if sorted(seeds) not in (wanted, *by_rule):
            at = f" at {setting}" if setting else ""
            faults.append(f"{arm}{at} has seeds {sorted(seeds)}, declared: {wanted}")
    return answer_of("seeds distinct and as declared", faults, [], f"seeds {report}")


def ledger_whole(sweep: Sweep) -> Answer:
    """Whether the ledger was only appended to, and ends with what the sweep declares."""
    question = "the ledger only appended to, and at one with sweep.json"
    declared = [entry.declaration for entry in sweep.ledger if entry.event == DECLARED]
    if not declared:
        return Answer(question, NOT_KNOWN, "there is no ledger")
    broken = broken_links(sweep.directory)
    faults = [f"line {number} does not follow on the line before" for number in broken]
    # Tuning may add values to its grid, by the rule that was declared.
    last, now = (replace(d, tuned={}) for d in (declared[-1], declaration_of(sweep.record)))
    if last != now:
        faults.append(f"it ends with {last}, sweep.json has {now}")
    return answer_of(question, faults, [], f"{len(sweep.ledger)} entries")


def declared_first(sweep: Sweep) -> Answer:
    """Whether all contrasts and seeds were declared before a table could suggest them."""
    plan = plan_contrasts(sweep, sweep.baseline, "val_loss")
    late = [f"{arm} - {other}: {reason}" for (arm, other), reason in plan.exploratory.items()]
    known = any(entry.event == DECLARED for entry in sweep.ledger)
    question = "all declared before results were shown"
    good = counted(len(plan.confirmatory), "contrast")
    return answer_of(question, late if known else [], [] if known else late, good)


def contrasts_as_declared(sweep: Sweep) -> Answer:
    """Whether ``table.json`` tests the declared contrasts, in one family, on these losses."""
    question, path = "table.json: declared contrasts, these losses", sweep.directory / "table.json"
    try:
        content = json.loads(path.read_bytes())
        rule, baseline = content["rule"], content["baseline"]
        shown = {(item["arm"], item["reference"]) for item in content["contrasts"]}
        sides = [side for arm in content["arms"] for side in (arm["main"], arm["common"]) if side]
        losses = {run["directory"]: run["val_loss"] for side in sides for run in side["runs"]}
        family, metric = rule["contrasts"], content["metric"]
    except FileNotFoundError:
        return Answer(question, NOT_KNOWN, f"{path} is not there; leave --check out to make it")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Answer(question, NO, f"{path} cannot be read: {error!r}")
    plan = plan_contrasts(sweep, sweep.baseline, metric)
    faults = [] if baseline == plan.baseline else [f"its baseline is {baseline!r}"]
    if family != plan.family:
        faults.append(f"Holm's family counts {family}, declared: {plan.family}")
    faults += [f"{arm} - {other} is not declared" for arm, other in shown - set(plan.pairs)]
    faults += [f"{arm} - {other} is missing" for arm, other in set(plan.pairs) - shown]
    for run in trained(sweep):
        loss, name = run.result.val_loss, run.directory.name
        if run in sweep.runs and losses.get(name) != loss:
            faults.append(f"{name} has {losses.get(name)!r} in the table, {loss!r} in result.json")
    return answer_of(question, faults, [], f"{plan.family} in Holm's family")


# What is asked of a folder, in this order; a new question is one function, and its place here.
QUESTIONS: tuple[Callable[[Sweep], Answer], ...] = (
    all_planned,
    whole_results,
    documents_add_up,
    same_text,
    same_code,
    same_settings,
    seeds_as_declared,
    contrasts_as_declared,
    ledger_whole,
    declared_first,
)
