"""The keys of a training command that describe no run: the study, the plan, what on failure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lm_experiments.errors import InputError
from lm_experiments.launch.resources import Resources, read_resources
from lm_experiments.rundir.parse import build

ON_FAILURE = ("continue", "stop")


@dataclass(frozen=True)
class RayConfig:
    """Where Ray runs.

    Attributes:
        address: of a cluster that runs already, host:port of its head or auto; None for Ray here.
    """

    address: str | None = None


@dataclass(frozen=True)
class CommandConfig:
    """What a command does beside describing its runs.

    Attributes:
        study: a declared study, as plain values.
        plan: only print what would be trained.
        on_failure: what a sweep does when a run fails, continue or stop.
        retries: how often a failed run is tried again, from its newest checkpoint.
    """

    study: dict[str, Any] | None = None
    plan: bool = False
    on_failure: str = "continue"
    retries: int = 0
    resources: Resources = field(default_factory=Resources)
    ray: RayConfig = field(default_factory=RayConfig)

    def __post_init__(self) -> None:
        if self.on_failure not in ON_FAILURE:
            raise InputError(
                f"on_failure={self.on_failure} is not known; it can be {' or '.join(ON_FAILURE)}."
            )
        if self.retries < 0:
            raise InputError(f"retries={self.retries} must be a whole number, 0 or more.")


def command_config(values: Mapping[str, Any] | DictConfig) -> CommandConfig:
    """Return the keys of the command among composed values, checked.

    Raises:
        InputError: where one has a value that it cannot have.
    """
    keys = [field.name for field in dataclasses.fields(CommandConfig)]
    known = {key: _plain(values[key]) for key in keys if key in values}
    sections = {"resources": read_resources, "ray": lambda ray: build(RayConfig, ray, "ray")}
    return build(CommandConfig, known, "", sections)


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
