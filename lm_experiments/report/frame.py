"""A sweep as a tidy pandas data frame: a row for each run, or for each logged value."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lm_experiments.report.collect import Run, Sweep
from lm_experiments.rundir.metrics import read_rows
from lm_experiments.rundir.names import METRICS
from lm_experiments.rundir.results import Result, RunError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# What says which run a row is; the rest of the result's own arm, seed and hash repeats it.
IDENTITY = ("sweep", "arm", "seed", "role", "directory")
STATE = ("status", "config_hash", "usable")
# Nested fields of a result that every frame has a column for.
NESTED: Mapping[str, Mapping[str, str]] = {
    "parameters": dict.fromkeys(("parameters.total", "parameters.non_embedding"), "float64"),
    "error": {f"error.{field.name}": "string" for field in dataclasses.fields(RunError)},
    "versions": {},
}
_TYPES = {"int": "float64", "float": "float64", "bool": "boolean"}


def run_frame(sweep: Sweep) -> DataFrame:
    """Return the runs of a sweep as a data frame, trials of tuning included (`role` "tune").

    One row per planned run: sweep, arm, seed, role, directory, status, config_hash, `usable`
    (whether the table averages its loss), `setting.KEY` for each tuned key, `axis.KEY` for each
    axis, then all fields of `result.json`, nested ones as `parameters.total`. The columns are the
    same whatever the runs hold. Numbers are float64, NaN where a run has none; losses are in nats
    per token.
    """
    import pandas as pd

    # Nested fields become columns with dotted names.
    frame = pd.json_normalize([_record(sweep, run) for run in (*sweep.runs, *sweep.trials)])
    frame = frame.drop(columns=list(NESTED), errors="ignore")
    declared = [name for name in frame.columns if name.startswith(("setting.", "axis."))]
    results = result_columns()
    known = [*IDENTITY, *STATE, *declared, *results]
    frame = frame.reindex(columns=[*known, *sorted(set(frame.columns) - set(known))])
    numbers = [n for n in frame if results.get(n) == "float64" or _numeric(n, frame[n])]
    for name in numbers:
        frame[name] = pd.to_numeric(frame[name], errors="coerce").astype("float64")
    texts = dict.fromkeys(known, "string")
    types = {**texts, **results, "seed": "int64", "usable": "bool"}
    return frame.astype({name: kind for name, kind in types.items() if name not in numbers})


def curve_frame(sweep: Sweep) -> DataFrame:
    """Return what the runs of a sweep logged, trials included, as a long data frame.

    One row per run, step and metric: identity, step, metric, value.
    """
    import pandas as pd

    columns = [*IDENTITY, "step", "metric", "value"]
    # Of a step that a resumed run logged twice, the later row counts.
    logged = {
        (*_identity(sweep, run).values(), row["step"], metric): float(value)
        for run in (*sweep.runs, *sweep.trials)
        for row in read_rows(run.directory / METRICS)
        for metric, value in row.items()
        if metric != "step" and type(value) in (int, float)
    }
    rows = [(*key, value) for key, value in logged.items()]
    texts = ("sweep", "arm", "role", "directory", "metric")
    types = {"seed": "int64", "step": "int64", "value": "float64", **dict.fromkeys(texts, "string")}
    return pd.DataFrame(rows, columns=columns).astype(types)


def result_columns() -> dict[str, str]:
    """Return the columns that every frame has for results, with their pandas types."""
    hints = typing.get_type_hints(Result)
    columns: dict[str, str] = {}
    for field in dataclasses.fields(Result):
        kind = next((t for t in _TYPES if t in str(hints[field.name])), "")
        columns |= NESTED.get(field.name, {field.name: _TYPES.get(kind, "string")})
    return {name: kind for name, kind in columns.items() if name not in (*IDENTITY, *STATE)}


def _record(sweep: Sweep, run: Run) -> dict[str, Any]:
    result = dataclasses.asdict(run.result)
    # The plan says what the run is; its directory may hold another run's past.
    for name in ("arm", "seed", "status", "config_hash"):
        del result[name]
    return {
        **_identity(sweep, run),
        "status": run.status,
        "config_hash": run.config_hash,
        "usable": run.usable,
        **{f"setting.{key}": value for key, value in run.setting.items()},
        **{f"axis.{axis}": run.overrides.get(axis) for axis in sweep.record.axes},
        **result,
    }


def _identity(sweep: Sweep, run: Run) -> dict[str, Any]:
    values = (sweep.record.name, run.arm, run.seed, run.role, run.directory.name)
    return dict(zip(IDENTITY, values, strict=True))


def _numeric(name: str, values: Series[Any]) -> bool:
    """Whether a column beside the result's own holds numbers only; axes hold typed text."""
    known = values.dropna()
    if known.empty or not name.startswith(("axis.", "setting.", "parameters.")):
        return False
    try:
        known.astype("float64")
    except ValueError:
        return False
    return True
