"""What loggers are told about a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LoggedRun:
    """A run's directory, its place in the sweep, and its resolved configuration.

    Attributes:
        sweep: the name of its sweep.
        tokens_per_step: training tokens of an optimizer step.
        flops_per_token: of training, forward and backward.
        roles: what the sweep has the run for, see `rundir.study.ROLES`; empty for a run by itself.
        baseline: the arm that the sweep compares with; empty for a run by itself.
        alone: whether the sweep has no other run.
        commit: the code's, None where it is not known.
        patch: how the code differs from its commit, as ``git diff`` writes it.
    """

    directory: Path
    sweep: str
    arm: str
    seed: int
    config: Mapping[str, Any]
    tokens_per_step: int
    flops_per_token: int
    roles: tuple[str, ...] = ()
    baseline: str = ""
    alone: bool = True
    commit: str | None = None
    patch: str = ""
