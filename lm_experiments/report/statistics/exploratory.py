"""Which contrasts are exploratory: those that were declared after results had been shown.

A test keeps its level only where what is tested, and on how many seeds, did not follow from the
results. The ledger of a sweep tells what was declared when, and which tables were shown before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lm_experiments.rundir.ledger import DECLARED, LOOK, Declaration, Entry

NO_LEDGER = "no ledger tells what was declared before results were shown"
Pair = tuple[str, str]
# A contrast by what its arms override: labels may change.
_Key = tuple[tuple[str, ...], tuple[str, ...]]


def exploratory_reasons(ledger: Sequence[Entry], pairs: Iterable[Pair]) -> dict[Pair, str]:
    """Why contrasts are exploratory; those that are not are left out."""
    declared = [entry.declaration for entry in ledger if entry.event == DECLARED]
    if not declared:
        return dict.fromkeys(pairs, NO_LEDGER)
    late = _late_pairs(ledger)
    everywhere = "; ".join(_late_changes(ledger))
    found = {}
    for pair in pairs:
        key = _key(declared[-1], pair)
        if reason := late.get(key, NO_LEDGER if key is None else "") or everywhere:
            found[pair] = reason
    return found


def _late_pairs(ledger: Iterable[Entry]) -> dict[_Key | None, str]:
    """The contrasts that were added after a table with results."""
    known: dict[_Key | None, str] = {}
    shown = ""
    for entry in ledger:
        if entry.event == LOOK and entry.look.finished:
            shown = f"declared on {entry.time[:10]} or later, after results had been shown"
        if entry.event == DECLARED:
            said = entry.declaration
            for arm, reference in said.contrasts:
                known.setdefault(_key(said, (arm, reference)), shown)
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


def _changes(before: Declaration, now: Declaration) -> Iterator[str]:
    after = "after p-values had been shown"
    if added := [seed for seed in now.seeds if seed not in before.seeds]:
        yield f"{_listed('seed', added)} added {after}, which no rule declared"
    elif now.looks != before.looks:
        yield f"the rule for seeds was changed {after}"
    if now.margin != before.margin:
        yield f"the margin was changed from {before.margin} to {now.margin} {after}"
    if now.tuned != before.tuned:
        yield f"the tuning was changed {after}"


def _listed(noun: str, numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers))
    return f"{noun}s {text} were" if len(numbers) > 1 else f"{noun} {text} was"


def _key(declared: Declaration, pair: Pair) -> _Key | None:
    """None where an arm is not declared."""
    arm, reference = (declared.arms.get(name) for name in pair)
    if arm is None or reference is None:
        return None
    return tuple(sorted(arm)), tuple(sorted(reference))
