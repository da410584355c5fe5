"""How a run's process died, and the result that it could not write itself."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_experiments.training.files import write_json

if TYPE_CHECKING:
    from lm_experiments.training.config import RunConfig


def record_death(directory: Path, config: RunConfig, identity: dict[str, str], cause: str) -> None:
    """Write the result of a process that could not write its own."""
    result: dict[str, Any] = {
        "status": "failed",
        "outcome": None,
        "arm": config.arm,
        "seed": config.seed,
        **identity,
        "error": {"type": "ProcessDied", "message": f"The process {cause}.", "traceback": None},
    }
    write_json(directory / "result.json", result)


def cause_of_death(code: int, out_of_memory: bool) -> str:
    """Return what an exit code means, as the end of a sentence that begins with the process."""
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
