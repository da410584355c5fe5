"""What a run is called in W&B: its group, name, type, tags and configuration."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_experiments.training.logged_run import LoggedRun
from lm_experiments.training.wandb.settings import TAG_LIMIT, WandbSettings

NAME_LIMIT = 128

# Whole words, so that `eos_token`, `tokens` and `tokenizer` stay.
_SECRET = re.compile(
    r"api_?key|secret|password|credential|^((access|auth|bearer|api|hf|hub|wandb)_?)?token$",
    re.IGNORECASE,
)


def described(config: WandbSettings, run: LoggedRun) -> dict[str, Any]:
    """Return what `wandb.init` is told of a run.

    The name that was typed is that of a run by itself; in a sweep it precedes those of its runs.
    """
    own = f"{run.arm} s{run.seed}"
    name = config.run_name if run.alone else " ".join(filter(None, (config.run_name, own)))
    return {
        "group": group_of(config, run.sweep),
        "name": (name or own)[:NAME_LIMIT],
        "job_type": config.job_type,
        "notes": config.notes,
        "tags": [*config.tags, *_tags(run)],
        "config": public_config(run.config),
    }


def group_of(config: WandbSettings, sweep: str) -> str:
    """Return the group of a sweep's runs."""
    return (config.group or sweep)[:NAME_LIMIT]


def tag(kind: str, value: object) -> str:
    """Return a tag such as ``arm:post``; a long one is cut, and stays apart from its like."""
    text = f"{kind}:{value}"
    if len(text) <= TAG_LIMIT:
        return text
    mark = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{text[: TAG_LIMIT - len(mark) - 1]}~{mark}"


def public_config(value: Any) -> Any:
    """Return `value` as nested dicts, lists, strings, numbers, bools and None, without secrets."""
    if isinstance(value, Mapping):
        kept = {str(key): item for key, item in value.items() if not _SECRET.search(str(key))}
        return {key: public_config(item) for key, item in kept.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [public_config(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _tags(run: LoggedRun) -> Iterable[str]:
    yield tag("study", run.sweep)
    yield tag("arm", run.arm)
    yield tag("seed", run.seed)
    for role in run.roles:
        yield tag("role", role)
    if run.arm == run.baseline:
        yield "baseline"
