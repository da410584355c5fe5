"""Which contrasts are exploratory: those that were declared after results had been shown.

A test keeps its level only where what is tested, and on how many seeds, did not follow from the
results. The ledger of a sweep tells what was declared when, and which tables were shown before.
Runs taken from another sweep had been seen there: a contrast of which one seed has both runs from
elsewhere is exploratory, unless it was declared before they ended, here or there. Trials that
halving ended make nothing exploratory: the rule was declared before, and no trial is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from lm_experiments.rundir.ledger import DECLARED, LOOK, Declaration, Entry, taken_from

NO_LEDGER = "no ledger tells what was declared before results were shown"
Pair = tuple[str, str]
# A seed, and the directories of an arm's run and of its reference's on it.
SeedPair = tuple[int, str, str]
# A contrast by what its arms override: labels may change.
_Key = tuple[tuple[str, ...], tuple[str, ...]]


def exploratory_reasons(
    ledger: Sequence[Entry], pairs: Mapping[Pair, Sequence[SeedPair]]
) -> dict[Pair, str]:
    """Why contrasts, given with their runs, are exploratory; those that are not are left out."""
    declared = [entry.declaration for entry in ledger if entry.event == DECLARED]
    if not declared:
        return dict.fromkeys(pairs, NO_LEDGER)
    late = _late_pairs(ledger)
    everywhere = "; ".join(_late_changes(ledger))
    seen = _seen_elsewhere(ledger, declared[-1], pairs)
    found = {}
    for pair in pairs:
        key = _key(declared[-1], pair)
        reason = late.get(key, NO_LEDGER if key is None else "") or everywhere
        if reason := reason or seen[pair]:
            found[pair] = reason
    return found


def late_claims(ledger: Sequence[Entry], rules: Iterable[str]) -> dict[str, str]:
    """Why published claims, given by their rules, were declared too late to be tested.

    Those that were declared before p-values had been shown, here and where runs were taken from,
    are left out.
    """
    known: dict[str, str] = {}
    shown = ""
    for entry in ledger:
        if entry.event == LOOK and entry.look.tested:
            after = f"declared on {entry.time[:10]} or later, after p-values had been shown"
            shown = shown or after
        if entry.event == DECLARED:
            for rule in entry.declaration.published:
                known.setdefault(rule, shown)
    found = {rule: known.get(rule, NO_LEDGER) for rule in rules}
    for origin in taken_from(ledger):
        for rule in found if origin.tested else ():
            if origin.tested and rule not in origin.tested.published:
                found[rule] = found[rule] or (
                    f"not declared in {origin.folder}, where p-values of its runs had been shown"
                )
    return {rule: reason for rule, reason in found.items() if reason}


def _seen_elsewhere(
    ledger: Sequence[Entry], now: Declaration, pairs: Mapping[Pair, Sequence[SeedPair]]
) -> dict[Pair, str]:
    """The contrasts whose runs were taken from other sweeps, after results were seen there."""
    origins = taken_from(ledger)
    ended = {name: when for origin in origins for name, when in origin.runs.items()}
    covering = {tuple(pair): origin for origin in origins for pair in origin.declared}
    folders = " and ".join(dict.fromkeys(origin.folder for origin in origins))
    told = f"{len(ended)} runs were taken from {folders}, where their results could be seen"
    first = _first_declared(ledger) if origins else {}
    found = {}
    for pair, runs in pairs.items():
        key = _key(now, pair)
        seen = [
            (arm, reference)
            for seed, arm, reference in runs
            if {arm, reference} <= ended.keys()
            and max(ended[arm], ended[reference]) <= first.get((key, seed), "")
        ]
        if any(names not in covering for names in seen):
            found[pair] = f"{told} before this was declared"
        else:
            sources = {covering[names].folder: covering[names].tested for names in seen}
            found[pair] = "; ".join(_changed_since(sources, now))
    return found


def _changed_since(sources: Mapping[str, Declaration | None], now: Declaration) -> Iterator[str]:
    """What is declared otherwise than in the folders of runs, where p-values had been shown."""
    for folder, tested in sources.items():
        if tested is not None:
            yield from _changes(tested, now, f" in {folder}")


def _first_declared(ledger: Iterable[Entry]) -> dict[tuple[_Key | None, int], str]:
    """When each contrast was first declared, by seed."""
    times: dict[tuple[_Key | None, int], str] = {}
    for entry in ledger:
        if entry.event == DECLARED:
            said = entry.declaration
            for key, seed in product(_keys(said), said.seeds):
                times.setdefault((key, seed), entry.time)
    return times


def _late_pairs(ledger: Iterable[Entry]) -> dict[_Key | None, str]:
    """The contrasts that were added after a table with results."""
    known: dict[_Key | None, str] = {}
    shown = ""
    for entry in ledger:
        if entry.event == LOOK and entry.look.finished:
            shown = f"declared on {entry.time[:10]} or later, after results had been shown"
        if entry.event == DECLARED:
            for key in _keys(entry.declaration):
                known.setdefault(key, shown)
    return known


def _late_changes(ledger: Iterable[Entry]) -> Iterator[str]:
    """What was changed, for all contrasts, after a table that showed p-values."""
    before: Declaration | None = None
    tested = False
    for entry in ledger:
        tested = tested or (entry.event == LOOK and entry.look.tested)
        if entry.event != DECLARED:
            continue
        now = entry.declaration
        if before and tested:
            yield from _changes(before, now)
        before = now


def _changes(before: Declaration, now: Declaration, where: str = "") -> Iterator[str]:
    after = f"after p-values had been shown{where}"
    if added := [seed for seed in now.seeds if seed not in before.seeds]:
        yield f"{_listed('seed', added)} added {after}, which no rule declared"
    elif now.looks != before.looks:
        yield f"the rule for seeds was changed {after}"
    if now.primary != before.primary:
        yield f"the measure was changed from {before.primary} to {now.primary} {after}"
    if now.margin != before.margin:
        yield f"the margin was changed from {before.margin} to {now.margin} {after}"
    if now.tuned != before.tuned:
        yield f"the tuning was changed {after}"


def _listed(noun: str, numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers))
    return f"{noun}s {text} were" if len(numbers) > 1 else f"{noun} {text} was"


def _keys(declared: Declaration) -> list[_Key | None]:
    return [_key(declared, (arm, reference)) for arm, reference in declared.contrasts]


def _key(declared: Declaration, pair: Pair) -> _Key | None:
    """None where an arm is not declared."""
    arm, reference = (declared.arms.get(name) for name in pair)
    if arm is None or reference is None:
        return None
    return tuple(sorted(arm)), tuple(sorted(reference))
