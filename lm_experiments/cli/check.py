"""``table --check``: what a reviewer asks of a sweep, each answered yes, no or not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from lm_experiments.cli.arguments import load_user_code
from lm_experiments.cli.recompute import losses_hold
from lm_experiments.errors import InputError
from lm_experiments.registry import UnknownComponentError
from lm_experiments.report import consistency
from lm_experiments.report.collect import Run, Sweep, collect
from lm_experiments.report.consistency import NO, Answer, answer_of, runs_of
from lm_experiments.rundir.identity import read_identity
from lm_experiments.rundir.names import HASH_END
from lm_experiments.rundir.words import aligned
from lm_experiments.study.identity import config_hash, hash_of_values
from lm_experiments.training.config import load_config


def check_sweep(folder: Path, words: Sequence[str]) -> int:
    """Print the answers for a sweep's folder; return 0, or 1 where one of them is no.

    ``words`` may be ``code_paths=[FILE,...]``, where runs have components of the user's own.
    Raises `InputError` for other words, and for a folder without runs or with damaged files.
    """
    if others := load_user_code(words):
        raise InputError(
            f"{others[0]} is not understood; --check takes one sweep's folder, and "
            "code_paths=[FILE]."
        )
    found = answers(collect(folder))
    print("\n".join(aligned([[each.answer, each.question, each.detail] for each in found])))
    return 1 if any(each.answer == NO for each in found) else 0


def answers(sweep: Sweep) -> list[Answer]:
    """Ask all `QUESTIONS` of a sweep, the cheap ones first."""
    return [ask(sweep) for ask in QUESTIONS]


def configurations_hash(sweep: Sweep) -> Answer:
    """Whether each ``config.yaml`` gives the hash that all other places have."""
    faults, unknown = [], []
    runs = runs_of(sweep)
    for run in runs:
        name = run.directory.name
        try:
            faults += [f"{name} {fault}" for fault in _other_hashes(run)]
        except (UnknownComponentError, OSError) as error:
            unknown.append(f"{name}: {error}")
        except (ValueError, TypeError, KeyError, yaml.YAMLError) as error:
            faults.append(f"{name}: {error}")
    question = "config.yaml, identity.json, sweep.json and folder have one hash"
    return answer_of(question, faults, unknown, f"{len(runs)} runs")


def _other_hashes(run: Run) -> list[str]:
    """Return where the hash of the run's configuration is another than the one computed anew."""
    config, identity = load_config(run.directory), read_identity(run.directory)
    data_hash = run.result.data_hash or identity.data_hash
    precision = run.result.precision or str(identity.values.get("trainer.precision"))
    wanted = config_hash(config, data_hash, precision)
    places = {
        "identity.json": identity.config_hash,
        "the values of identity.json": hash_of_values(identity.values),
        "sweep.json": run.row.config_hash,
        "result.json": run.result.config_hash,
    }
    found = [
        f"has hash {wanted[:8]} by config.yaml, {str(there)[:8]} by {place}"
        for place, there in places.items()
        if there not in (None, wanted)
    ]
    if not run.directory.name.endswith(f"-{wanted[:HASH_END]}"):
        found.append(f"has hash {wanted[:8]} by config.yaml, which its name does not end with")
    if (config.seed, config.arm_overrides) != (run.row.seed, run.row.overrides):
        found.append(f"is seed {config.seed} of {config.arm_overrides} by config.yaml alone")
    return found


_FIRST, *_OTHERS = consistency.QUESTIONS
# With what only a program that can train is able to answer.
QUESTIONS: tuple[Callable[[Sweep], Answer], ...] = (
    _FIRST,
    configurations_hash,
    *_OTHERS,
    losses_hold,
)
