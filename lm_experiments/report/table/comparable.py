"""Which runs may stand in one table: what they must share, and what an arm differs in on purpose.

Runs that declare the same must be the same. A difference between arms whose own overrides account
for it is on purpose and gets a warning; any other difference refuses the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.report.collect import Run, Sweep
from lm_experiments.rundir.results import STEPS
from lm_experiments.rundir.sweeps import SweepRow

HASH_CHARACTERS = 12
LISTED_RUNS = 3

_DATA = ("data", "tokenizer")
_SIZES = ("model.context_length", "size", "arch")
# Keys of the data section that batch the corpus and do not change it.
_BATCHING = ("data.batch_size", "data.eval_batch_size")


@dataclass(frozen=True)
class Shared:
    """Something all runs of a table share: `keys` are the overrides that change it on purpose.

    `trained` restricts it to runs that reached their end, as a failed run stops short of it. It is
    `budgeted` where arms may differ in it so as to be equal in something else.
    """

    name: str
    reason: str
    keys: tuple[str, ...] = ()
    trained: bool = False
    budgeted: bool = False

    def value(self, run: Run) -> str | None:
        """The run's value as text, a hash by its beginning."""
        value = run.fact(self.name)
        return short_hash(value) if isinstance(value, str) else count_text(value)


@dataclass(frozen=True)
class Difference:
    """A shared value that differs: the runs by value, and whether their arms account for it."""

    shared: Shared
    groups: dict[str, list[Run]]
    on_purpose: bool


def count_text(value: float | None) -> str | None:
    """A whole number with thousands separators."""
    return None if value is None else f"{value:,.0f}"


def short_hash(digest: str | None) -> str | None:
    """The beginning of a hash or commit, with its "+dirty" where it has one."""
    if digest is None:
        return None
    head, plus, dirty = digest.partition("+")
    return head[:HASH_CHARACTERS] + plus + dirty


SHARED = (
    Shared("data_hash", "they did not use the same data", _DATA),
    Shared("tokenizer_hash", "a token is not the same piece of text for them", _DATA),
    # Not excused by an arm's own context length: its loss is measured on easier tokens.
    Shared("eval_context", "a loss with more context is a lower loss"),
    Shared("val_tokens", "their losses are over different text", (*_DATA, *_SIZES), trained=True),
    Shared(
        "tokens",
        "they did not train on the same budget",
        ("trainer.max_steps", "trainer", "data.batch_size", "data", *_SIZES),
        trained=True,
        budgeted=True,
    ),
    Shared("code", "what they ran is not the same program"),
)


@dataclass(frozen=True)
class Settings:
    """A run's row, and everything that determines its result."""

    row: SweepRow
    values: Mapping[str, Any]


def mixed_settings(
    runs: Sequence[Settings], tuned: str | None = None
) -> dict[str, dict[str, list[SweepRow]]]:
    """The settings in which runs differ without meaning to: key -> value -> rows.

    Runs of one arm differ in the seed alone; those of different arms also in what either changes,
    and in the key that is `tuned`. Runs whose values are not known are left out.
    """
    known = [run for run in runs if run.values]
    arms: dict[tuple[Any, ...], list[Settings]] = {}
    for run in known:
        row = run.row
        arms.setdefault((row.arm, row.role, *sorted(row.setting.items())), []).append(run)
    planned = [run for run in known if run.row.changes is not None]
    keys = dict.fromkeys(key for run in known for key in run.values)
    found = {}
    for key in (key for key in keys if key != "seed"):
        groups = [_by_value(key, arm) for arm in arms.values()]
        if key != tuned:
            same = [run for run in planned if key not in (run.row.changes or ())]
            groups.insert(0, _by_value(key, same))
        if mixed := next((group for group in groups if len(group) > 1), None):
            found[key] = mixed
    return found


def _by_value(key: str, runs: Iterable[Settings]) -> dict[str, list[SweepRow]]:
    groups: dict[str, list[SweepRow]] = {}
    for run in runs:
        value = "${seed}" if key in run.row.by_seed else str(run.values.get(key))
        groups.setdefault(value, []).append(run.row)
    return groups


def differences(sweep: Sweep) -> list[Difference]:
    """What the runs differ in, of the things that runs of one table share."""
    return [*_conditions(sweep.runs), *_settings(sweep)]


def _settings(sweep: Sweep) -> list[Difference]:
    """The settings that differ without an arm changing them."""
    runs = {id(run.row): run for run in (*sweep.runs, *sweep.trials)}
    tuned = sweep.study.tune.key if sweep.study and sweep.study.tune else None
    mixed = mixed_settings([Settings(run.row, run.values) for run in runs.values()], tuned)
    return [
        Difference(
            Shared(key, "their arms do not change it"),
            {value: [runs[id(row)] for row in rows] for value, rows in groups.items()},
            on_purpose=False,
        )
        for key, groups in mixed.items()
        if key != "data_hash"
    ]


def _conditions(runs: Sequence[Run]) -> list[Difference]:
    """What the finished runs differ in, of what their results say."""
    found = []
    for shared in SHARED:
        chosen = [run for run in runs if (run.usable if shared.trained else run.finished)]
        groups = _grouped(chosen, shared.value)
        if len(groups) > 1:
            found.append(Difference(shared, groups, _on_purpose(chosen, shared)))
    return found


def refuse_mixed(sweep: Sweep) -> None:
    """Raise `InputError` for runs that differ in what they share without meaning to."""
    accidents = []
    for difference in differences(sweep):
        if not difference.on_purpose:
            parts = [f"{value} in {_named(runs)}" for value, runs in difference.groups.items()]
            shared = difference.shared
            accidents.append(f"{shared.name} ({', '.join(parts)}: {shared.reason})")
    if accidents:
        raise InputError(
            f"The runs of {sweep.record.name!r} do not belong in one table, as they differ in "
            f"{'; and in '.join(accidents)}; run the odd ones again under the same conditions, or "
            "type --allow-mixed to draw the table with a warning."
        )


def tokenizers_differ(sweep: Sweep) -> bool:
    """Whether a loss per token means another thing for some arms than for others."""
    usable = [run for run in sweep.runs if run.usable]
    if any(run.result.tokenizer_hash for run in usable):
        return len(_grouped(usable, lambda run: run.result.tokenizer_hash)) > 1
    declared = {_purpose(run, ("tokenizer",)) for run in usable}
    return len(declared) > 1 and len(_grouped(usable, lambda run: run.result.data_hash)) > 1


def _on_purpose(runs: Sequence[Run], shared: Shared) -> bool:
    values: dict[tuple[str, ...], set[str]] = {}
    for run in runs:
        if (value := shared.value(run)) is not None:
            arm = (run.arm,) if shared.budgeted and has_equal_budget(run) else ()
            values.setdefault((*_purpose(run, shared.keys), *arm), set()).add(value)
    return all(len(same) == 1 for same in values.values())


def has_equal_budget(run: Run) -> bool:
    """Whether a run's steps were set so that it costs as much as the baseline."""
    return run.result.equal not in (None, STEPS)


def _purpose(run: Run, keys: Iterable[str]) -> tuple[str, ...]:
    given = {**run.overrides, **run.setting}
    return tuple(sorted(f"{key}={given[key]}" for key in given if _concerns(key, keys)))


def _concerns(key: str, keys: Iterable[str]) -> bool:
    below = key not in _BATCHING and any(key.startswith(f"{group}.") for group in keys)
    return below or key in keys


def _grouped(runs: Iterable[Run], value: Callable[[Run], str | None]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if (key := value(run)) is not None:
            groups.setdefault(key, []).append(run)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def _named(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(run.row.directory for run in runs))
    if len(names) <= LISTED_RUNS:
        return " and ".join(names)
    return f"{len(names)} runs such as {names[0]}"
