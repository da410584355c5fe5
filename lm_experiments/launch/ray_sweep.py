"""The runs of a sweep on Ray: started, waited for, told about, and started again where lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_experiments.launch.endings import record_failure
from lm_experiments.launch.fork import RUNS_ELSEWHERE
from lm_experiments.launch.ray_cluster import Cluster, Submission, submitting
from lm_experiments.launch.ray_worker import Ended
from lm_experiments.launch.resources import Share
from lm_experiments.rundir.results import RunError, run_status
from lm_experiments.study.job import INTERRUPTED, conclude
from lm_experiments.study.plan import PlannedRun

LOOK_EVERY = 5.0
# How long runs that were asked to stop may take to save themselves.
STOP_SECONDS = 120.0
# How often a run is started again whose worker or node was lost.
LOST = 3


def train_on_ray(
    cluster: Cluster,
    share: Share,
    runs: Sequence[PlannedRun],
    retries: int,
    stop_on_failure: bool,
) -> None:
    """Train runs whose directories are made, as many at once as there is room for.

    Args:
        retries: how often a run that failed is tried again.
        stop_on_failure: end the sweep with the first run that failed.

    Raises:
        InputError: where the cluster cannot train them.
        SystemExit: where a signal came, or a run failed that was to stop the sweep.
    """
    with submitting(cluster, runs[0].directory.parent, share) as submission:
        _Sweep(submission, share, retries, stop_on_failure).train(runs)


class _Sweep:
    """Which runs are with Ray, and how often each has been started again."""

    def __init__(
        self, submission: Submission, share: Share, retries: int, stop_on_failure: bool
    ) -> None:
        self.submission = submission
        self.share = share
        self.retries = retries
        self.stop_on_failure = stop_on_failure
        self.open: dict[Any, PlannedRun] = {}
        self.failures: Counter[Path] = Counter()
        self.losses: Counter[Path] = Counter()

    def train(self, runs: Sequence[PlannedRun]) -> None:
        """Train the runs to their ends."""
        try:
            for run in runs:
                self._start(run)
            while self.open:
                self._wait()
        except BaseException:
            self._stop()
            raise

    def _start(self, run: PlannedRun) -> None:
        self.open[self.submission.start(run)] = run

    def _wait(self) -> None:
        reference = self.submission.wait(LOOK_EVERY)
        if reference is not None:
            run = self.open.pop(reference)
            self._ended(run, self.submission.end_of(reference, run.directory))
        elif not self.submission.has_room(self.share):
            print("No machine is left that could train the remaining runs.", flush=True)
            raise SystemExit(1)

    def _ended(self, run: PlannedRun, ended: Ended | None) -> None:
        name = run.directory.name
        if ended is None or ended.code in INTERRUPTED:
            self._lost(run)
            return
        failed = ended.code not in (0, RUNS_ELSEWHERE)
        if failed and self.failures[run.directory] < self.retries:
            self.failures[run.directory] += 1
            attempt = self.failures[run.directory]
            print(f"{name} failed; trying again ({attempt} of {self.retries}).", flush=True)
            self._start(run)
            return
        conclude(run.directory, run.identity, ended.code, ended.memory_killed)
        self._stop_where_failed(run)

    def _lost(self, run: PlannedRun) -> None:
        self.losses[run.directory] += 1
        times = self.losses[run.directory]
        if times <= LOST:
            print(f"{run.directory.name} was lost with its worker; it goes on elsewhere.")
            self._start(run)
            return
        death = RunError(
            "ProcessDied", f"The process was lost with its worker {times} times.", None
        )
        record_failure(run.directory, run.identity, death)
        conclude(run.directory, run.identity, 1, False)
        self._stop_where_failed(run)

    def _stop_where_failed(self, run: PlannedRun) -> None:
        if self.stop_on_failure and run_status(run.directory) == "failed":
            raise SystemExit(1)

    def _stop(self) -> None:
        """Let the runs that are being trained save themselves, and wait until they have."""
        if not self.submission.stop():
            return
        deadline = time.monotonic() + STOP_SECONDS
        while self.open and time.monotonic() < deadline:
            if (reference := self.submission.wait(LOOK_EVERY)) is not None:
                self.submission.end_of(reference, self.open.pop(reference).directory)
