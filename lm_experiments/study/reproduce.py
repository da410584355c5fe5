"""Train cells of a table again, from what their runs recorded, and compare the losses."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Any

import yaml

from lm_experiments.errors import InputError
from lm_experiments.launch.local import train
from lm_experiments.registry import UnknownComponentError
from lm_experiments.report.table.saved import not_a_table, read_table, table_hash
from lm_experiments.rundir.ledger import utc
from lm_experiments.rundir.names import CONFIG
from lm_experiments.rundir.reproduced import Reproduction, RetrainedCell, write_reproduction
from lm_experiments.rundir.results import DONE, FAILED, Result, read_result
from lm_experiments.rundir.words import aligned, counted
from lm_experiments.study.plan import PlannedRun, make_directory, planned
from lm_experiments.training.config import RunConfig, load_config
from lm_experiments.training.devices import find_device
from lm_experiments.training.logger_config import NoLogger
from lm_experiments.training.result import provenance
from lm_experiments.training.user_code import named_files, take_code_paths

BIT_EQUAL, WITHIN_NOISE, DIFFERS = "bit-equal", "within noise", "differs"
# With fewer seeds their spread says too little, and this share of the loss is allowed instead.
SEEDS_FOR_SPREAD = 3
RELATIVE_NOISE = 0.005
# What has to be the same, by the results of both runs, for the same bits to come out.
CONDITIONS: Mapping[str, Callable[[Result], Any]] = {
    "device": lambda result: result.device,
    "machine": lambda result: result.machine,
    "threads": lambda result: result.threads,
    "precision": lambda result: result.precision,
    "torch": lambda result: result.versions.get("torch"),
    "code": lambda result: result.code_hash,
}


@dataclass(frozen=True)
class Cell:
    """A run that a table rests on.

    Attributes:
        directory: its run directory.
        val_loss: nats per token, as the table has it.
        losses: those of all seeds of its arm.
        result: its ``result.json``.
    """

    arm: str
    seed: int
    directory: Path
    config_hash: str
    val_loss: float
    losses: tuple[float, ...]
    result: Result

    @property
    def label(self) -> str:
        """The cell's name for people."""
        return f"{self.arm} s{self.seed}"

    @property
    def noise(self) -> float:
        """The difference, in nats per token, that counts as none."""
        if len(self.losses) >= SEEDS_FOR_SPREAD:
            return 2 * stdev(self.losses)
        return RELATIVE_NOISE * self.val_loss

    @property
    def noise_rule(self) -> str:
        """Where `noise` comes from, in words."""
        if len(self.losses) >= SEEDS_FOR_SPREAD:
            return f"2 sd of {len(self.losses)} seeds"
        return f"{RELATIVE_NOISE:.1%} of the loss, with {counted(len(self.losses), 'seed')}"

    @property
    def code(self) -> str:
        """The code it was trained with, in words."""
        return _code(self.result.commit, self.result.dirty, self.result.code_hash)


@dataclass(frozen=True)
class Retrained:
    """A cell and what became of it when it was trained again.

    Attributes:
        val_loss: nats per token, None where the training failed.
        changed: the conditions that were not the same, each in words.
        reason: what stopped it, where something did.
    """

    cell: Cell
    val_loss: float | None
    changed: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def difference(self) -> float | None:
        """Retrained minus recorded, in nats per token."""
        return None if self.val_loss is None else self.val_loss - self.cell.val_loss

    @property
    def verdict(self) -> str:
        """One of bit-equal, within noise, differs, failed."""
        if self.difference is None:
            return FAILED
        if self.difference == 0:
            return BIT_EQUAL
        # Not a number is not within anything.
        return WITHIN_NOISE if abs(self.difference) <= self.cell.noise else DIFFERS

    @property
    def reproduced(self) -> bool:
        """Whether the loss is equal, but for noise."""
        return self.verdict in (BIT_EQUAL, WITHIN_NOISE)


def given_code(words: Sequence[str]) -> list[str]:
    """Run the files that ``code_paths=[...]`` names, and return them; refuse other words."""
    if others := take_code_paths(words):
        raise InputError(
            f"{others[0]} is not understood; after the table come options, see --help, and "
            "code_paths=[my_block.py]."
        )
    return named_files(words[-1]) if words else []


def draw_cells(table: Path, count: int, seed: int) -> list[Cell]:
    """Return the cells to train again: the baseline's, then other arms' drawn by ``seed``.

    Each arm is drawn at most once, and one of its seeds; the order that is drawn does not depend
    on which other arms there are. Runs that blew up or failed have no loss to compare.
    Raises `InputError` where the table cannot be read or its runs are not those it was made from.
    """
    if count < 1:
        raise InputError(f"--cells {count} must be 1 or more.")
    content = read_table(table)
    try:
        arms = {arm["arm"]: _usable(arm["main"]["runs"]) for arm in content["arms"]}
        baseline = content["baseline"]
        usable = [arm for arm, rows in arms.items() if rows]
        drawn = sorted(usable, key=lambda arm: (arm != baseline, _key(seed, arm)))
        cells = [_draw_seed(table.parent, arm, arms[arm], seed) for arm in drawn[:count]]
    except (KeyError, TypeError, AttributeError) as error:
        raise not_a_table(table) from error
    if not cells:
        raise InputError(f"{table} rests on no run that ended with a loss; there is nothing to do.")
    return cells


def plan_cell(cell: Cell, out: Path, code_paths: Sequence[str]) -> PlannedRun:
    """Return the cell as a run in the sweep folder ``out``; ``code_paths`` are loaded already.

    Raises `InputError` where its corpus, configuration or code is missing or is another one.
    """
    config = _configuration(cell, out, code_paths)
    run = planned(config)
    if run.data_hash != cell.result.data_hash:
        raise InputError(
            f"The corpus, data.name={config.data.name} data.path={config.data.path}, is not the "
            f"one {cell.directory} was trained on (data hash {run.data_hash[:8]} now, "
            f"{str(cell.result.data_hash)[:8]} then); put the old text back."
        )
    if run.config_hash != cell.config_hash:
        raise InputError(
            f"{cell.directory / CONFIG}, or a file in code_paths, is no longer what the "
            f"table was made from (config hash {run.config_hash[:8]} now, {cell.config_hash[:8]} "
            f"then); put it back, or check out {cell.code}, which the table names."
        )
    return run


def train_again(cell: Cell, run: PlannedRun) -> Retrained:
    """Train the planned cell in a process of its own, and compare it with what was recorded."""
    make_directory(run)
    ending = train(run.task)
    result = read_result(run.directory)
    if ending.status != DONE or result is None or result.val_loss is None:
        error = (result and result.error) or ending.text(run.directory)
        return Retrained(cell, None, reason=str(error))
    return Retrained(cell, result.val_loss, tuple(_changes(cell.result, result)))


def code_warnings(cells: Sequence[Cell]) -> list[str]:
    """Return a sentence for each code the cells were trained with that is not surely this one."""
    here = provenance()
    this = _code(here["commit"], here["dirty"], here["code_hash"])
    others = [cell.code for cell in cells if cell.result.code_hash != here["code_hash"]]
    return [f"The table was made with {there}; this is {this}." for there in dict.fromkeys(others)]


def default_folder(table: Path) -> Path:
    """Return the folder for the new runs: beside the table's own, under a name of its own."""
    folder = table.parent if table.parent.name not in ("", "..") else table.parent.resolve()
    return folder.with_name(f"{folder.name}-reproduced")


def check_fresh(out: Path) -> None:
    """Raise `InputError` for a folder that holds something."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there already; remove it, or name another with --out.")


def record(out: Path, table: Path, found: Sequence[Retrained]) -> None:
    """Write into the folder of the new runs what became of the table's cells."""
    cells = [
        RetrainedCell(item.cell.label, item.cell.val_loss, item.val_loss, item.verdict)
        for item in found
    ]
    write_reproduction(out, Reproduction(table_hash(table), utc(), cells))


def result_lines(found: Sequence[Retrained]) -> list[str]:
    """Return the comparison as lines with aligned columns, and what explains it under them."""
    rows = [["cell", "recorded", "retrained", "difference", "noise", "verdict"]]
    explained = ["Final validation losses, in nats per token."]
    for item in found:
        cell, loss, difference = item.cell, item.val_loss, item.difference
        retrained = "" if loss is None else f"{loss:.6f}"
        change = "" if difference is None else f"{difference:+.2e}" if difference else "0"
        noise = f"{cell.noise:.4f} ({cell.noise_rule})"
        rows.append([cell.label, f"{cell.val_loss:.6f}", retrained, change, noise, item.verdict])
        if item.verdict != BIT_EQUAL:
            explained.append(f"{cell.label}: {_explanation(item)}")
    return [*aligned(rows), *explained]


def _explanation(item: Retrained) -> str:
    if item.verdict == FAILED:
        return str(item.reason)
    if item.changed:
        return f"bit-equality was not to be expected: {'; '.join(item.changed)}."
    return f"bit-equality was to be expected, since {', '.join(CONDITIONS)} are the same."


def _usable(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    # A loss that is not finite is a word in the table.
    return [row for row in rows if row["status"] == DONE and isinstance(row["val_loss"], float)]


def _key(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()


def _draw_seed(folder: Path, arm: str, rows: Sequence[Mapping[str, Any]], seed: int) -> Cell:
    row = min(rows, key=lambda row: _key(seed, row["directory"]))
    directory = folder / row["directory"]
    result = read_result(directory)
    if result is None:
        raise InputError(f"{directory}, which the table names, has no result any more.")
    if (result.val_loss, result.config_hash) != (row["val_loss"], row["config_hash"]):
        raise InputError(
            f"The table has a loss of {row['val_loss']} for {directory}, whose result says "
            f"{result.val_loss}; make it again: python scripts/table.py {folder}"
        )
    losses = tuple(other["val_loss"] for other in rows)
    return Cell(arm, row["seed"], directory, row["config_hash"], row["val_loss"], losses, result)


def _configuration(cell: Cell, out: Path, code_paths: Sequence[str]) -> RunConfig:
    recorded = _recorded(cell.directory)
    if recorded.code_paths and not code_paths:
        raise _code_is_missing(cell.directory, recorded.code_paths)
    config = dataclasses.replace(
        recorded,
        name=out.name,
        runs_dir=str(out.parent),
        cache_dir=os.environ.get("LM_EXPERIMENTS_CACHE", recorded.cache_dir),
        code_paths=list(code_paths) if recorded.code_paths else [],
        logger=NoLogger(),
        trainer=dataclasses.replace(
            recorded.trainer,
            accelerator=str(cell.result.device),
            threads=cell.result.threads or recorded.trainer.threads,
            precision=cell.result.precision or recorded.trainer.precision,
        ),
    )
    try:
        find_device(config)
    except InputError:
        # The recorded kind of device is not here.
        trainer = dataclasses.replace(config.trainer, accelerator="auto")
        config = dataclasses.replace(config, trainer=trainer)
    return config


def _recorded(directory: Path) -> RunConfig:
    try:
        return load_config(directory)
    except UnknownComponentError as error:
        values = yaml.safe_load((directory / CONFIG).read_text(encoding="utf-8"))
        raise _code_is_missing(directory, values.get("code_paths") or [], error) from None


def _code_is_missing(
    directory: Path, code_paths: Sequence[str], error: Exception | None = None
) -> InputError:
    files = ",".join(code_paths) or "my_block.py"
    return InputError(
        f"{directory} was trained with components of your own{f' ({error})' if error else ''}; "
        f"name their file again, since no code is run from a run directory: code_paths=[{files}]"
    )


def _changes(then: Result, now: Result) -> list[str]:
    return [
        f"{name} {value(then)} then, {value(now)} now"
        for name, value in CONDITIONS.items()
        if value(then) != value(now)
    ]


def _code(commit: str | None, dirty: bool | None, code_hash: str | None) -> str:
    name = f"commit {commit[:10]}" if commit else "code outside a repository"
    return f"{name}{' with uncommitted changes' if dirty else ''}, code {str(code_hash)[:10]}"
