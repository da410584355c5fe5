"""Every field of every file of a run and sweep directory, written and read back.

The examples are made from the fields themselves, so that a field that is added is tested too.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.errors import InputError
from lm_experiments.rundir.evaluations import Evaluate, Evaluation
from lm_experiments.rundir.identity import Identity, read_identity, write_identity
from lm_experiments.rundir.ladder import Ladder, Rung
from lm_experiments.rundir.metrics import last_rows, read_rows, write_rows
from lm_experiments.rundir.published import Claim, Source
from lm_experiments.rundir.results import FAILED, Result, RunError, read_result, write_result
from lm_experiments.rundir.study import TUNED, Chosen, Study, Tuning
from lm_experiments.rundir.sweeps import SweepRecord, SweepRow, read_sweep, write_sweep

PLAIN: dict[Any, Any] = {
    typing.Any: [1, 0.5, "word", None],
    int: 7,
    float: 0.1 + 0.2,
    str: 'a "quoted" text, \u00e9',
    bool: True,
}
# Fields whose values are checked: an example that passes and is not the default.
ALLOWED: dict[tuple[type, str], Any] = {
    (Result, "status"): FAILED,
    (Claim, "context"): None,
    (SweepRow, "role"): TUNED,
    (Claim, "expect"): "higher",
    (Claim, "measure"): "best value",
    (Claim, "contrast"): ["other", "base"],
    (Claim, "order"): {},
    (Claim, "range"): [0.1, 0.2],
    (Claim, "unit"): "octaves",
    (Tuning, "grid"): [1e-4, 1e-3, 0.1],
    (Study, "arms"): {"base": [], "other": ["ffn=relu"]},
    (Study, "baseline"): "base",
    (Study, "contrasts"): [["base", "other"]],
    (Study, "controls"): ["other"],
    (Study, "primary"): "val_loss",
    (Study, "seeds"): [0, 3],
    (Study, "looks"): [],
    (Ladder, "by"): "size",
    (Ladder, "steps"): [],
    (Ladder, "trunk"): False,
    (Ladder, "sizes"): {"a": [], "b": ["size=tiny"], "c": ["model.d_model=96"]},
    (Evaluate, "data"): {"key": ["data=kjv"]},
}


def example(cls: type[Any]) -> Any:
    """Return an object of the dataclass, each of whose fields has another value than by default."""
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    made = {name: value_of(hints[name]) for name in names if (cls, name) not in ALLOWED}
    return cls(**made, **{name: value for (of, name), value in ALLOWED.items() if of is cls})


def value_of(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return example(hint)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return value_of(parts[0])
    if origin is list:
        return [value_of(parts[0])]
    if origin is dict:
        return {"key": value_of(parts[1])}
    return PLAIN[hint]


def defaults(item: Any) -> list[str]:
    """Return the fields that have their default."""
    names = []
    for field in dataclasses.fields(item):
        made = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if made else field.default  # type: ignore[misc]
        if getattr(item, field.name) == default:
            names.append(field.name)
    return names


@pytest.mark.parametrize(
    "cls",
    [
        *(Result, RunError, SweepRecord, SweepRow, Ladder, Rung),
        *(Study, Tuning, Chosen, Claim, Source, Evaluate, Evaluation),
    ],
)
def test_the_examples_leave_no_field_at_its_default(cls: type[Any]) -> None:
    # The one metric that can be compared today is the default; looks do not go with tuning.
    # A claim has a contrast or an order, and a ladder steps, with or without a trunk, or sizes.
    expected = {
        Study: ["looks", "primary"],
        Claim: ["order", "context"],
        Ladder: ["steps", "trunk"],
    }
    assert defaults(example(cls)) == expected.get(cls, [])


def test_every_field_of_a_result(tmp_path: Path) -> None:
    written = example(Result)
    write_result(tmp_path, written)
    assert read_result(tmp_path) == written


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan, None])
def test_losses_that_json_has_no_number_for(tmp_path: Path, loss: float | None) -> None:
    write_result(tmp_path, dataclasses.replace(example(Result), val_loss=loss))
    read = read_result(tmp_path)
    assert read is not None
    assert repr(read.val_loss) == repr(loss)


def test_every_field_of_a_sweep_with_its_study_tuning_and_choices(tmp_path: Path) -> None:
    written = example(SweepRecord)
    assert written.study.tune.chosen["key"].edge
    write_sweep(tmp_path, written)
    assert read_sweep(tmp_path) == written


def test_a_study_with_seeds_by_rule(tmp_path: Path) -> None:
    by_rule = {"seeds": [0, 3, 4, 5], "looks": [3, 4]}
    study = dataclasses.replace(example(Study), tune=None, ladder=None, **by_rule)
    write_sweep(tmp_path, SweepRecord("x", study=study))
    read = read_sweep(tmp_path)
    assert read is not None and read.study == study


def test_every_field_of_an_identity(tmp_path: Path) -> None:
    written = example(Identity)
    write_identity(tmp_path, written)
    assert read_identity(tmp_path) == written


def test_rows_of_metrics(tmp_path: Path) -> None:
    rows = [{"step": 1, "train/loss": 0.1 + 0.2, "tokens": 10}, {"step": 2, "val/loss": -math.inf}]
    write_rows(tmp_path / "metrics.jsonl", rows)
    assert read_rows(tmp_path / "metrics.jsonl") == rows == last_rows(tmp_path / "metrics.jsonl")
    assert read_rows(tmp_path / "metrics.jsonl", "val/loss") == rows[1:]


@pytest.mark.parametrize("name", ["result.json", "sweep.json", "identity.json"])
def test_damage_is_told_by_one_sentence_with_a_remedy(tmp_path: Path, name: str) -> None:
    read: dict[str, Any] = {
        "result.json": read_result,
        "sweep.json": read_sweep,
        "identity.json": read_identity,
    }
    for text in ("{", "[]", '{"status": "done", "runs": 1, "config_hash": 3}'):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=rf"{name} is damaged \(.*\); remove it, and the same"):
            read[name](tmp_path)
