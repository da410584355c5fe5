"""One run, without ``-m``: planned, trained, and reported in one line."""

from __future__ import annotations

import math
import sys

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lm_experiments.cli.errors import refuse
from lm_experiments.errors import InputError
from lm_experiments.launch.endings import run_line
from lm_experiments.launch.fork import start_server
from lm_experiments.launch.launcher import check_single
from lm_experiments.launch.local import train_in_this_process, train_with_retries
from lm_experiments.launch.resources import read_resources
from lm_experiments.rundir.results import DONE, read_result, run_status
from lm_experiments.study.command_config import CommandConfig, command_config
from lm_experiments.study.debug import debug
from lm_experiments.study.equal import check_alone
from lm_experiments.study.estimate import Estimates
from lm_experiments.study.identity import arm_overrides
from lm_experiments.study.plan import PlannedRun, checked, make_directory, plain, planned
from lm_experiments.study.planner import print_offline
from lm_experiments.study.preview import preview
from lm_experiments.study.store import done_elsewhere, take_runs


def run_single(config: DictConfig) -> float | None:
    """Train one run, or print its plan; SystemExit if it is refused, fails or is stopped.

    The validation loss is returned, as what a search by Hydra's Optuna sweeper minimises; it is
    infinite where it is not usable, None where only the plan was asked for.
    """
    try:
        command, run = _plan(config)
        if command.plan:
            preview([run], study=None, launcher=None, estimates=Estimates(), only=True)
            return None
        if command.debug:
            raise SystemExit(debug(command.debug, run))
        take_runs([run])
        status = run_status(run.directory)
        if status != DONE:
            make_directory(run)
    except (ValueError, OSError) as error:
        refuse(error, sys.argv[1:])
    if status == DONE:
        origin = f"Taken from {run.source}" if run.source else "Done already"
        print(f"{origin}: {run_line(run.directory)}")
        return _loss(run)
    print(
        f"Training {run.directory}: {run.ledger.parameters:,} parameters, feed-forward width "
        f"{run.ledger.ffn_width:,}, {run.config.tokens:,} tokens"
    )
    if run.task.devices == 1 and not command.retries:
        ending = train_in_this_process(run.task)
    else:
        ending = train_with_retries(run.task, command.retries)
    if ending.status != DONE:
        print(ending.text(run.directory), file=sys.stderr)
        raise SystemExit(ending.exit_status)
    print(ending.text(run.directory))
    print_offline(run.directory.parent)
    return _loss(run)


def _loss(run: PlannedRun) -> float:
    result = read_result(run.directory)
    loss = result.val_loss if result and result.usable else None
    return math.inf if loss is None else loss


def _plan(config: DictConfig) -> tuple[CommandConfig, PlannedRun]:
    values, hydra = plain(config), HydraConfig.get()
    command = command_config(values)
    if command.study is not None:
        name = hydra.runtime.choices.get("study")
        raise InputError(
            f"study={name} is several runs; add -m: python scripts/train.py -m study={name}"
        )
    launcher = hydra.runtime.choices.get("hydra/launcher")
    check_single(launcher, read_resources(vars(command.resources)), command.ray.address)
    if config.trainer.devices != 1 or command.retries:
        # It loads its imports while this process plans.
        start_server()
    values["name"] = values["name"] or "single"
    if not values["arm_overrides"]:
        values["arm_overrides"] = arm_overrides(list(hydra.overrides.task))
    asked = checked(values)
    check_alone(asked)
    [run] = done_elsewhere([planned(asked)], command.runs_from)
    return command, run
