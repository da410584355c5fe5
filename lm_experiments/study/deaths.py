"""The result of a run whose own process could not write one."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_experiments.training.files import RESULT, read_result, write_json


@dataclass(frozen=True)
class Death:
    """What ended a process: a kind of error, a sentence, and the log that has its traceback."""

    type: str
    message: str
    traceback: str | None = None


def record_death(directory: Path, identity: dict[str, str], death: Death) -> None:
    """Write into ``result.json`` that the run failed, and of what; what else it holds is kept."""
    # Imported late: workers of Ray count deaths, and are to start without torch.
    from lm_experiments.training.config import load_config

    config = load_config(directory)
    there: dict[str, Any] = read_result(directory) or {
        "arm": config.arm,
        "seed": config.seed,
        **identity,
    }
    if there.get("status") == "done":
        # A sweep that trains everything anew has not removed it, or it was written meanwhile.
        there = {key: there[key] for key in ("arm", "seed", *identity)}
    error = {"type": death.type, "message": death.message, "traceback": death.traceback}
    result = {**there, "status": "failed", "outcome": None, "error": error}
    write_json(directory / RESULT, result)


def cause_of(code: int, out_of_memory: bool = False) -> str:
    """Return how a process ended, from its exit code; negative ones name a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    if code == -signal.SIGKILL and out_of_memory:
        return "was killed by the kernel for lack of memory; try a smaller trainer.micro_batch_size"
    return f"was killed by signal {-code}"


def memory_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory; 0 where it keeps none."""
    try:
        counters = Path("/proc/vmstat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters if line.startswith("oom_kill ")), 0)
