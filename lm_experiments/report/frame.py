"""A sweep as a tidy pandas data frame: a row for each run, or for each logged value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_experiments.report.collect import SPECIAL_NUMBERS, Run, Sweep, collect, read_metrics

if TYPE_CHECKING:
    from pandas import DataFrame

IDENTITY = ("sweep", "arm", "seed", "role", "directory")
# These columns are there, in this order, whatever the runs hold; other result fields follow.
NUMBERS = (
    "val_loss",
    "bits_per_byte",
    "perplexity",
    "val_tokens",
    "eval_context",
    "initial_loss",
    "expected_initial_loss",
    "gradient_norm_at_init",
    "outcome_step",
    "steps",
    "tokens",
    "parameters.total",
    "parameters.non_embedding",
    "flops_per_token",
    "train_flops",
    "seconds",
    "tokens_per_second",
    "peak_memory_bytes",
    "learning_rate",
    "threads",
)
TEXTS = (
    "outcome",
    "device",
    "data_hash",
    "tokenizer_hash",
    "commit",
    "error.type",
    "error.message",
)


def load(sweep_dir: str | Path, curves: bool = False) -> DataFrame:
    """The runs of a sweep as a data frame, trials of tuning included (`role` "tune").

    One row per planned run: sweep, arm, seed, role, directory, status, config_hash, a column
    `usable` (whether the table averages its loss; one that diverged is not), `setting.KEY` for
    each tuned key, `axis.KEY` for each axis, then all fields of `result.json`, nested ones as
    `parameters.total`. Numbers are float64, NaN where a run has none; losses are in nats per
    token. With `curves`, one row per run, step and metric: identity, step, metric, value.
    Raises `InputError` as `collect` does.
    """
    sweep = collect(sweep_dir)
    runs = [*sweep.runs, *sweep.trials]
    return _curve_frame(sweep, runs) if curves else _run_frame(sweep, runs)


def _run_frame(sweep: Sweep, runs: Sequence[Run]) -> DataFrame:
    import pandas as pd

    frame = pd.DataFrame([_record(sweep, run) for run in runs])
    known = [*_leading(frame), *NUMBERS, *TEXTS, "dirty"]
    frame = frame.reindex(columns=[*known, *sorted(set(frame.columns) - set(known))])
    numbers = [n for n in frame if n in NUMBERS or (n != "seed" and _numeric(n, frame[n]))]
    for name in numbers:
        frame[name] = pd.to_numeric(frame[name], errors="coerce").astype("float64")
    texts = [n for n in known if n not in (*numbers, "seed", "usable", "dirty")]
    types = {"seed": "int64", "usable": "bool", "dirty": "boolean"}
    return frame.astype({**types, **dict.fromkeys(texts, "string")})


def _leading(frame: DataFrame) -> list[str]:
    """The columns that come before the result's own: all up to `config_hash` and the axes."""
    names = [str(name) for name in frame.columns]
    return [*IDENTITY, "status", "config_hash", "usable", *(n for n in names if _is_declared(n))]


def _is_declared(name: str) -> bool:
    return name.startswith(("setting.", "axis."))


def _record(sweep: Sweep, run: Run) -> dict[str, Any]:
    result = _flat(run.result)
    # The plan names the arm and seed; what the result says of its folder's past does not count.
    for name in ("arm", "seed", "status", "config_hash"):
        result.pop(name, None)
    given = dict(item.lstrip("+").partition("=")[::2] for item in run.overrides)
    return {
        **_identity(sweep, run),
        "status": run.status,
        "config_hash": run.config_hash,
        "usable": run.usable,
        **{f"setting.{key}": value for key, value in run.setting.items()},
        **{f"axis.{axis}": given.get(axis) for axis in sweep.axes},
        **result,
    }


def _identity(sweep: Sweep, run: Run) -> dict[str, Any]:
    values = (sweep.name, run.arm, run.seed, run.role, run.directory.name)
    return dict(zip(IDENTITY, values, strict=True))


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = SPECIAL_NUMBERS.get(value, value) if _text(value) else value
    return flat


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _numeric(name: str, values: Iterable[Any]) -> bool:
    """Whether a column holds numbers only; an axis's are text, as they were typed."""
    known = [value for value in values if value is not None and value == value]
    if name.startswith("axis."):
        return bool(known) and all(_is_number(str(value)) for value in known)
    return bool(known) and all(type(value) in (int, float) for value in known)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _curve_frame(sweep: Sweep, runs: Sequence[Run]) -> DataFrame:
    import pandas as pd

    columns = [*IDENTITY, "step", "metric", "value"]
    rows = [
        (*_identity(sweep, run).values(), step, metric, value)
        for run in runs
        for (step, metric), value in _logged(run).items()
    ]
    texts = ("sweep", "arm", "role", "directory", "metric")
    types = {"seed": "int64", "step": "int64", "value": "float64", **dict.fromkeys(texts, "string")}
    return pd.DataFrame(rows, columns=columns).astype(types)


def _logged(run: Run) -> dict[tuple[int, str], float]:
    """The run's logged numbers; of a step that a resumed run logged twice, the later."""
    logged: dict[tuple[int, str], float] = {}
    for row in read_metrics(run.directory):
        step = row.get("step")
        if not isinstance(step, int):
            continue
        for metric, value in row.items():
            if metric != "step" and type(value) in (int, float):
                logged[step, metric] = float(value)
    return logged
