"""The task Hydra runs: one composed configuration, trained to its end."""

from __future__ import annotations

import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from lm_experiments.cli.errors import explain, refuse
from lm_experiments.errors import InputError
from lm_experiments.launch.backend import check_alone
from lm_experiments.launch.endings import cause_of, memory_kills, record_failure
from lm_experiments.launch.fork import RUNS_ELSEWHERE, start_server, train_isolated
from lm_experiments.report.progress import progress_line
from lm_experiments.rundir.identity import Identity, read_identity
from lm_experiments.rundir.results import RunError, read_result, run_status
from lm_experiments.study.identity import arm_overrides
from lm_experiments.study.plan import (
    PlannedRun,
    checked,
    make_directory,
    plain,
    planned,
)
from lm_experiments.study.summary import offline_lines, run_line
from lm_experiments.training.config import RunConfig, load_config
from lm_experiments.training.signals import SIGNALS
from lm_experiments.training.user_code import load_code

SINGLE = "single"
# How a run's process ends where a signal asked it to: after saving, or before it could.
INTERRUPTED = {code: 128 + n for n in SIGNALS for code in (128 + n, -n)}


def run_job(config: DictConfig) -> None:
    """Train one run: in this process where it is alone, in its own where it is one of a sweep.

    Raises:
        SystemExit: where a single run is refused or failed, or any run was interrupted.
    """
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        # A launcher may have brought us to another process than the one that planned the sweep.
        load_code(config.code_paths)
        directory = Path(config.directory)
        try:
            _run_in_sweep(directory, config.retries)
        except (ValueError, OSError) as error:
            # Hydra would keep it to itself. The end of the sweep counts the run as failed.
            print(f"{directory.name}: FAILED: {explain(error, ())}", flush=True)
        if config.on_failure == "stop" and run_status(directory) == "failed":
            raise SystemExit(1)
        return
    try:
        if config.trainer.devices != 1:
            # It loads its imports while this process plans.
            start_server()
        run = _plan_alone(config)
        _make_alone(run)
    except (ValueError, OSError) as error:
        refuse(error, sys.argv[1:])
    _run_alone(run)


def _plan_alone(config: DictConfig) -> PlannedRun:
    values = plain(config)
    if values["study"] is not None:
        raise InputError(
            f"study={values['study']['name']} is several runs; add -m: python scripts/train.py -m "
            f"study={values['study']['name']}"
        )
    check_alone(HydraConfig.get(), values)
    values["name"] = values["name"] or SINGLE
    if not values["arm_overrides"]:
        values["arm_overrides"] = arm_overrides(list(HydraConfig.get().overrides.task))
    return planned(checked(values))


def _make_alone(run: PlannedRun) -> None:
    if run.status != "done":
        make_directory(run)


def _run_alone(run: PlannedRun) -> None:
    if run.status == "done":
        print(f"Done already: {run_line(run.directory)}")
        return
    print(f"Training {run.directory}: {_sizes(run)}")
    _train_here(run)
    print(run_line(run.directory))
    print("\n".join(offline_lines(run.directory.parent)))


def _train_here(run: PlannedRun) -> None:
    from lm_experiments.training.fit import RunningElsewhereError, train_directory

    devices = run.config.trainer.devices
    try:
        if devices == 1:
            train_directory(run.directory, run.identity)
            return
        code = train_isolated(run.directory, run.identity, run.config.code_paths, devices)
        if code == RUNS_ELSEWHERE:
            raise RunningElsewhereError(f"{run.directory} is being trained by another process.")
    except SystemExit:
        if run_status(run.directory) == "interrupted":
            print(f"Stopped. The same command continues {run.directory}.", file=sys.stderr)
            raise
        # A component ended the program, which nobody had asked it to.
        print(run_line(run.directory), file=sys.stderr)
        raise SystemExit(1) from None
    except Exception as error:
        line = run_line(run.directory)
        if read_result(run.directory) is None:
            line = f"{run.directory}: FAILED: {type(error).__name__}: {explain(error, ())}"
        print(line, file=sys.stderr)
        raise SystemExit(1) from None
    if code:
        print(run_line(run.directory), file=sys.stderr)
        raise SystemExit(INTERRUPTED.get(code, 1))


def _run_in_sweep(directory: Path, retries: int) -> None:
    """Train a run from the directory its sweep has planned and made."""
    if run_status(directory) == "done":
        print(f"{directory.name}: another process has trained it meanwhile.", flush=True)
        return
    config = load_config(directory)
    identity = read_identity(directory)
    kills = memory_kills()
    code = _attempt(directory, config, identity)
    for attempt in range(retries):
        if code in (0, RUNS_ELSEWHERE) or code in INTERRUPTED:
            break
        print(f"{directory.name} failed; trying again ({attempt + 1} of {retries}).", flush=True)
        code = _attempt(directory, config, identity)
    if code in INTERRUPTED:
        raise SystemExit(INTERRUPTED[code])
    conclude(directory, identity, code, memory_kills() > kills)


def conclude(directory: Path, identity: Identity, code: int, out_of_memory: bool) -> None:
    """Say how a run of a sweep ended, and record it where its process could not.

    Args:
        code: the exit code of the process; negative where a signal killed it.
        out_of_memory: whether the kernel killed a process for lack of memory meanwhile.
    """
    if code == RUNS_ELSEWHERE:
        print(f"{directory.name}: another process is training it; left to that one.", flush=True)
        return
    if code and run_status(directory) == "waiting":
        cause = cause_of(code, out_of_memory)
        record_failure(directory, identity, RunError("ProcessDied", f"The process {cause}.", None))
    print(run_line(directory))
    print(f"  {progress_line(directory.parent)}", flush=True)


def _attempt(directory: Path, config: RunConfig, identity: Identity) -> int:
    """Train a run in its own process, and return the exit code.

    A result that says done stands, whatever its process did afterwards.
    """
    devices = config.trainer.devices
    code = train_isolated(directory, identity, config.code_paths, devices)
    if code and code not in INTERRUPTED and run_status(directory) == "done":
        print(f"{directory.name}: done; its process {cause_of(code)} afterwards.", flush=True)
        return 0
    return code


def _sizes(run: PlannedRun) -> str:
    return (
        f"{run.ledger.parameters:,} parameters, feed-forward width {run.ledger.ffn_width:,}, "
        f"{run.config.tokens:,} tokens"
    )
