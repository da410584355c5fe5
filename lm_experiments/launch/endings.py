"""The result of a run whose own process could not write one."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

from lm_experiments.rundir.identity import Identity
from lm_experiments.rundir.results import DONE, FAILED, Result, RunError, read_result, write_result


def record_failure(directory: Path, identity: Identity, error: RunError) -> None:
    """Write into ``result.json`` that the run failed, and of what; what else it holds is kept."""
    # Imported late: workers of Ray look at endings, and are to start without torch.
    from lm_experiments.training.config import load_config

    there = read_result(directory)
    if there is None or there.status == DONE:
        # A sweep that trains everything anew has not removed it, or it was written meanwhile.
        config = load_config(directory)
        there = Result(FAILED, config.arm, config.seed, identity.config_hash, identity.data_hash)
    failed = dataclasses.replace(there, status=FAILED, outcome=None, error=error)
    write_result(directory, failed)


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
