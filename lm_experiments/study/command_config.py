"""The keys of the command line that belong to no run: what the command does with its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf

from lm_experiments.errors import InputError
from lm_experiments.fields import Use, fields_of
from lm_experiments.launch.resources import AUTO
from lm_experiments.rundir.parse import build

ON_FAILURE = ("continue", "stop")
OVERFIT, ONE_STEP, PROFILE = "overfit", "one_step", "profile"
DEBUG = (OVERFIT, ONE_STEP, PROFILE)


@dataclass(frozen=True)
class ResourcesConfig:
    """What a sweep gives each run; auto is chosen from the machine, as the plan says.

    Attributes:
        gpus: GPUs of a run: 0.25 packs four runs on one, 2 gives a run two; auto is one.
        cpus: CPU cores of a run, each with a thread; auto is one, or more if there are fewer runs.
        at_once: the most runs at once on this machine; 1 is one after another, on all cores.
    """

    gpus: float | str = AUTO
    cpus: float | str = AUTO
    at_once: int | str = AUTO


@dataclass(frozen=True)
class RayConfig:
    """A running Ray cluster.

    Attributes:
        address: host:port of its head, or auto; null starts Ray on this machine.
    """

    address: str | None = None


@dataclass(frozen=True)
class CommandConfig:
    """What the command does with its runs; the same for one run and for a sweep.

    Attributes:
        study: a declared study, with -m: study=NAME.
        plan: whether to print what would be trained, and train nothing.
        debug: a look at one run instead of training it: overfit learns one batch by heart, one_step
            makes a step, profile writes a trace of some.
        on_failure: whether to continue with the other runs after one has failed, or stop.
        retries: how often a failed run is tried again, from its newest checkpoint.
        resources: what a sweep gives each run.
        ray: the cluster of hydra/launcher=ray.
        runs_from: folders of sweeps, or of one, whose finished runs are taken instead of trained
            again where they are the same runs by the same code; [] trains all.
    """

    study: Annotated[dict[str, Any] | None, Use.COMMAND] = None
    plan: Annotated[bool, Use.COMMAND] = False
    debug: Annotated[str | None, Use.COMMAND] = None
    on_failure: Annotated[str, Use.COMMAND] = "continue"
    retries: Annotated[int, Use.COMMAND] = 0
    resources: Annotated[ResourcesConfig, Use.COMMAND] = field(default_factory=ResourcesConfig)
    ray: Annotated[RayConfig, Use.COMMAND] = field(default_factory=RayConfig)
    runs_from: Annotated[list[str], Use.COMMAND] = field(default_factory=lambda: ["${runs_dir}"])

    def __post_init__(self) -> None:
        if self.on_failure not in ON_FAILURE:
            raise InputError(
                f"on_failure={self.on_failure} is not known; it can be {' or '.join(ON_FAILURE)}."
            )
        if self.debug not in (None, *DEBUG):
            raise InputError(f"debug={self.debug} is not known; it can be {', '.join(DEBUG)}.")
        if self.retries < 0:
            raise InputError(f"retries={self.retries} must be 0 or more.")


def command_config(values: Mapping[str, Any] | DictConfig) -> CommandConfig:
    """Build the command's part of composed values; InputError names the key and the value."""
    own = {f.name: values[f.name] for f in fields_of(CommandConfig) if f.name in values}
    for key, value in own.items():
        if OmegaConf.is_config(value):
            own[key] = OmegaConf.to_container(value, resolve=True)
    return build(CommandConfig, own, "")
