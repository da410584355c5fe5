"""How a run ended: decided, recorded and printed in this one place.

A process ends by itself, by a signal, or by the kernel for lack of memory; its result may say more.
`ending_of` combines these into an `Ending`, which determines the lines printed, the exit status of
the command, and whether the run is tried again.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from lm_experiments.errors import InputError, one_sentence
from lm_experiments.launch.task import Policy
from lm_experiments.rundir.identity import read_identity
from lm_experiments.rundir.names import CONFIG, RESULT
from lm_experiments.rundir.results import (
    DONE,
    ENDED,
    FAILED,
    INTERRUPTED,
    Result,
    RunError,
    is_done,
    read_result,
    run_status,
    write_result,
)
from lm_experiments.training.signals import SIGNALS

# Endings that a result cannot state: another process trains the run; its machine is gone.
ELSEWHERE, LOST = "elsewhere", "lost"
# How often a run whose machine was lost is started again.
LOST_RETRIES = 3


@dataclass(frozen=True)
class ProcessExit:
    """How one process of a run ended.

    Attributes:
        code: its exit code; negative if a signal killed it.
        finished: whether it reported that it trained to the end.
        error: the error that it reported, if any.
        rank: its rank among the ``processes`` of the run.
        ended: when, in seconds of the monotonic clock.
        out_of_memory: whether the kernel killed a process for lack of memory meanwhile.
    """

    code: int
    finished: bool = False
    error: RunError | None = None
    rank: int = 0
    processes: int = 1
    ended: float = 0.0
    out_of_memory: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether it trained to the end and exited with 0."""
        return self.finished and self.code == 0

    @property
    def cause(self) -> str:
        """How it ended, to follow "The process"."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        if self.code == -signal.SIGKILL and self.out_of_memory:
            return (
                "was killed by the kernel for lack of memory; "
                "try a smaller trainer.micro_batch_size"
            )
        return f"was killed by signal {-self.code}"

    @property
    def reason(self) -> RunError:
        """Why it failed, as the result states it."""
        rank = f" of rank {self.rank}" if self.processes > 1 else ""
        death = RunError("ProcessDied", f"The process{rank} {self.cause}.", None)
        return self.error or death

    @property
    def stop_signal(self) -> int:
        """The signal that ended it, whether or not it could save first; 0 for none."""
        number = self.code - 128 if self.code > 128 else -self.code
        return number if number in SIGNALS else 0


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        status: done, failed, interrupted, elsewhere or lost.
        signal: the signal that interrupted it.
        note: what else is to be printed.
        error: why it failed, if that could not be written to its directory.
    """

    status: str
    signal: int = 0
    note: str = ""
    error: RunError | None = None

    @property
    def exit_status(self) -> int:
        """The exit status of a command that trained this run."""
        if self.status == INTERRUPTED:
            return 128 + self.signal
        return 0 if self.status == DONE else 1

    def text(self, directory: Path) -> str:
        """Return the lines to print."""
        if self.status == ELSEWHERE:
            return f"{directory.name}: another process is training it; skipped."
        if self.status == INTERRUPTED:
            return f"Stopped. The same command continues {directory}."
        line = run_line(directory)
        if self.error is not None:
            line = f"{directory.name}: FAILED: {self.error}"
        return f"{directory.name}: {self.note}\n{line}" if self.note else line


class Attempts:
    """Decides whether a run is tried again, and says so; one for each run."""

    def __init__(self, retries: int) -> None:
        self._allowed = {FAILED: retries, LOST: LOST_RETRIES}
        self._made: Counter[str] = Counter()

    @property
    def is_last(self) -> bool:
        """Whether the run is not tried again if it fails."""
        return self._made[FAILED] >= self._allowed[FAILED]

    def again(self, directory: Path, ending: Ending) -> bool:
        """Return whether to train the run once more after this ending."""
        status, allowed = ending.status, self._allowed.get(ending.status, 0)
        if self._made[status] >= allowed:
            return False
        self._made[status] += 1
        if status == LOST:
            print(f"{directory.name} was lost with its worker; trying again.", flush=True)
        else:
            times = f"{self._made[status]} of {allowed}"
            print(f"{directory.name} failed; trying again ({times}).", flush=True)
        return True


def ending_of(
    directory: Path,
    first: ProcessExit,
    exits: Sequence[ProcessExit] = (),
    signalled: int | None = None,
) -> Ending:
    """Decide how a run ended whose processes have all ended, and record a failure.

    Args:
        first: the process whose end ended the run.
        exits: all its processes; empty where ``first`` is the only one.
        signalled: the signal that this process received meanwhile.
    """
    if signalled:
        return Ending(INTERRUPTED, signal=signalled)
    if is_done(directory):
        note = "" if first.is_clean else f"done; its process {first.cause} afterwards."
        return Ending(DONE, note=note)
    if first.is_clean and run_status(directory) == INTERRUPTED:
        # It rests at the step it was asked to train to.
        return Ending(DONE)
    stopped = next((exit.stop_signal for exit in (first, *exits) if exit.stop_signal), 0)
    if stopped and run_status(directory) != FAILED:
        return Ending(INTERRUPTED, signal=stopped)
    if first.rank == 0 and (directory / RESULT).exists():
        # Rank zero has recorded its error itself.
        return Ending(FAILED)
    return failed(directory, first.reason)


def failed(directory: Path, error: RunError) -> Ending:
    """Record in ``result.json`` that a run failed, if its own process could not."""
    try:
        there = read_result(directory)
        if there is None or there.status == DONE:
            values = yaml.safe_load((directory / CONFIG).read_text(encoding="utf-8"))
            there = Result(FAILED, str(values["arm"]), int(values["seed"]))
            with suppress(InputError):
                there = replace(there, **read_identity(directory).hashes)
        write_result(directory, replace(there, status=FAILED, outcome=None, error=error))
    except (OSError, InputError) as problem:
        message = f"{error.message.rstrip('.')}; {one_sentence(problem)}"
        return Ending(FAILED, error=RunError(error.type, message, None))
    return Ending(FAILED)


def finish(directory: Path, ending: Ending, policy: Policy) -> None:
    """Print how a run of a sweep ended; SystemExit if that ends the sweep."""
    if ending.status == INTERRUPTED:
        raise SystemExit(ending.exit_status)
    print(ending.text(directory), flush=True)
    if ending.status != ELSEWHERE:
        print(f"  {policy.standing(directory)}", flush=True)
    if ending.status == FAILED and policy.stop_on_failure:
        raise SystemExit(1)


def run_line(directory: Path) -> str:
    """Return one line: which run, how it ended, its loss or what stopped it."""
    result = read_result(directory)
    if result is None:
        return f"{directory.name}: no result yet"
    if result.status == DONE:
        loss = None if result.val_loss is None else f"{result.val_loss:.4f}"
        return (
            f"{directory.name}: {result.outcome}, validation loss {loss} "
            f"after {result.steps:,} steps in {result.seconds:,.0f} s"
        )
    if result.status in (INTERRUPTED, ENDED) and result.curve_loss is not None:
        return (
            f"{directory.name}: validation loss {result.curve_loss:.4f} after {result.steps:,} "
            "steps; it can go on"
        )
    error = result.error or RunError(result.status, "continue it: same command", None)
    log = f" (traceback in {directory / error.traceback})" if error.traceback else ""
    return f"{directory.name}: {result.status.upper()}: {error.type}: {error.message}{log}"


class MemoryKills:
    """Tells runs that the kernel killed for lack of memory from runs killed otherwise.

    The kernel counts its kills, and says of none whom it killed: each explains one run.
    """

    def __init__(self) -> None:
        self._explained = 0

    def explain_one(self, since: int) -> bool:
        """Return whether there was a kill, more than ``since``, that explains no other run."""
        explained = max(since, self._explained)
        if out_of_memory_kills() <= explained:
            return False
        self._explained = explained + 1
        return True


def out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory, 0 if not counted."""
    try:
        counters = Path("/proc/vmstat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters if line.startswith("oom_kill ")), 0)
