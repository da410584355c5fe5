"""The records of a sweep in W&B, written as the folder that they are the mirror of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lm_experiments.errors import InputError
from lm_experiments.rundir.metrics import Row, write_rows
from lm_experiments.rundir.names import CONFIG, LEDGER, METRICS, SWEEP
from lm_experiments.rundir.results import result_of_values, write_result
from lm_experiments.study.wandb_summary import SUMMARY
from lm_experiments.training.wandb.axes import AXES, X_AXIS
from lm_experiments.training.wandb.client import first_line, has_credentials, quiet
from lm_experiments.training.wandb.ending import DIRECTORY, KEPT, RESULT
from lm_experiments.training.wandb.offline import PREFIX


def fetch(source: str, into: Path) -> Path:
    """Write the sweep of ``wandb:ENTITY/PROJECT/GROUP`` into a new folder of the group's name.

    Histories are read whole. What the summary of the sweep has not told, such as the plan of one
    that has not ended, is left out. Nothing is changed in W&B.

    Args:
        source: which sweep.
        into: the folder that the sweep's is made in.

    Raises:
        InputError: for another form, no API key, no such runs, or a folder that is there.
    """
    entity, project, group = _parsed(source)
    folder = into / Path(group).name
    if folder.exists():
        raise InputError(f"{folder} exists; type another folder after --out.")
    with quiet() as wandb:
        if not has_credentials(wandb.setup().settings.base_url):
            raise InputError("W&B asks who you are; type wandb login first.")
        try:
            found = wandb.Api().runs(f"{entity}/{project}", {"group": group}, lazy=False)
            _write_all(list(found), folder, source)
        except InputError:
            raise
        except Exception as error:
            # The client's errors have no class in common.
            raise InputError(f"{source} cannot be read: {first_line(error).rstrip('.')}.") from None
    return folder


def _write_all(runs: Sequence[Any], folder: Path, source: str) -> None:
    if not runs:
        raise InputError(
            f"{source} has no runs that you can see; type {PREFIX}ENTITY/PROJECT/GROUP as in the "
            "address of the group's page."
        )
    folder.mkdir(parents=True)
    for run in runs:
        if run.job_type == SUMMARY:
            _download(run, folder, (SWEEP, LEDGER))
        else:
            _write(run, folder / Path(run.summary_metrics.get(DIRECTORY, run.id)).name)


def _parsed(source: str) -> list[str]:
    words = source.removeprefix(PREFIX).split("/", 2)
    if len(words) < 3 or not all(words):
        raise InputError(
            f"{source} names no sweep in W&B; type {PREFIX}ENTITY/PROJECT/GROUP, such as "
            f"{PREFIX}me/lm_experiments/grid."
        )
    return words


def _write(run: Any, directory: Path) -> None:
    """Write a run's directory as far as a table needs it."""
    directory.mkdir()
    config = yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True)
    (directory / CONFIG).write_text(config, encoding="utf-8")
    write_rows(directory / METRICS, _rows(run.scan_history(use_cache=False)))
    if RESULT in run.summary_metrics:
        write_result(directory, result_of_values(run.summary_metrics[RESULT]))
    _download(run, directory, KEPT)


def _rows(history: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Return the rows of `metrics.jsonl`, without what the mirror adds."""
    added = {X_AXIS, *AXES} - {"tokens"}
    for row in history:
        if row.get(X_AXIS) is not None:
            kept = {k: v for k, v in row.items() if k not in added and k[0] != "_"}
            values = {key: value for key, value in kept.items() if value is not None}
            yield {"step": int(row[X_AXIS]), **values}


def _download(run: Any, folder: Path, names: Iterable[str]) -> None:
    for file in run.files(names=list(names)):
        file.download(root=str(folder), exist_ok=True)
