"""A run's mirror in Weights & Biases, which may fail in any way without stopping the training.

The local `metrics.jsonl` is the source of truth; after a resume W&B is brought level with it.
"""

from __future__ import annotations

import contextlib
import logging
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from lm_experiments.rundir.results import Result
from lm_experiments.training.logged_run import LoggedRun
from lm_experiments.training.wandb.axes import X_AXIS, Spent
from lm_experiments.training.wandb.client import close_service, finish, keep, say, start_run
from lm_experiments.training.wandb.description import described
from lm_experiments.training.wandb.ending import DIRECTORY, tell_result
from lm_experiments.training.wandb.offline import ID_FILE, UNSENT_FILE, logs_of
from lm_experiments.training.wandb.settings import WandbSettings
from lm_experiments.training.wandb.transaction_log import logged_keys

if TYPE_CHECKING:
    from wandb import Run


log = logging.getLogger(__name__)

# The file of a W&B run that says how the code differed from its commit.
PATCH = "code.patch"


class WandbMirror(Logger):
    """Sends every logged row to one W&B run, with `trainer/global_step` as the x axis.

    Each row also says what had been spent by then, see `axes.AXES`.

    `mode` is the mode that the run got: online, offline or disabled. Errors of the client end the
    mirroring with one warning; they are never raised. Ranks above zero hold no run.
    """

    def __init__(self, config: WandbSettings, identity: LoggedRun) -> None:
        super().__init__()
        self._identity = identity
        self._project = config.project
        self._run: Run | None = None
        self._known: dict[int, set[str]] = {}
        self._server_step = -1
        self._last_step = 0
        self._spent = Spent(identity.tokens_per_step, identity.flops_per_token)
        self.mode = "disabled"
        if getattr(rank_zero_only, "rank", 0):
            return
        home = identity.directory
        continued = (home / ID_FILE).is_file()
        self._run, self.mode, problem = start_run(
            config, home, described(config, identity), identity.commit
        )
        if problem:
            log.warning(say(problem, self.mode, "this run's W&B log"))
        if (run := self._run) is None:
            return
        # By it the records of the service find back to the plan.
        self._guard(lambda: run.summary.update({DIRECTORY: home.name}))
        if continued:
            self._known, self._server_step = _already_sent(run, home, self.mode)
        if identity.patch:
            self._guard(lambda: _keep_patch(run, identity.patch))
        if self.mode == "online":
            log.info("W&B run: %s", run.url)
            print(f"W&B: {run.url}", flush=True)

    @property
    def name(self) -> str:
        """The W&B project."""
        return self._project

    @property
    def save_dir(self) -> str:
        """The run directory; the client's files are in its `wandb` folder."""
        return str(self._identity.directory)

    @property
    def version(self) -> str:
        """The W&B run id, empty if there is no run."""
        return "" if self._run is None else str(self._run.id)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Send one row; without a step it belongs to the last one seen."""
        self._last_step = step = self._last_step if step is None else step
        spent = self._spent.by(step, metrics)
        if (run := self._run) is None or step <= self._server_step:
            return
        known = self._known.get(step, set())
        if row := {key: value for key, value in metrics.items() if key not in known}:
            self._guard(lambda: run.log({**row, **spent, X_AXIS: step}))

    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing: the run's config is the resolved `config.yaml` and stays equal to it."""

    def bring_level(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Send the rows of `metrics.jsonl` that W&B never got: of a process that was killed, or
        from before the run had W&B.
        """
        for row in rows:
            step = int(row["step"])
            self.log_metrics({key: value for key, value in row.items() if key != "step"}, step)

    def finish(self, exit_code: int, result: Result | None = None) -> None:
        """End the run (0 is success) with what it came to, where that is known.

        Waits at most `client.FINISH_TIMEOUT` seconds for an upload.
        """
        if (run := self._run) is not None:
            if self._guard(lambda: self._end(run, exit_code, result)) and self.mode == "online":
                (self._identity.directory / UNSENT_FILE).unlink(missing_ok=True)
            self._run = None
            close_service()

    def _end(self, run: Run, exit_code: int, result: Result | None) -> None:
        if result is not None:
            exit_code = tell_result(run, self._identity.directory, result, exit_code)
        finish(run, exit_code)

    def _guard(self, call: Callable[[], object]) -> bool:
        """Return whether a call of the client succeeded; after a failure it is not called again."""
        try:
            call()
            return True
        except Exception as error:
            self._run = None
            if self.mode == "online":
                # The end of the sweep says how to send the rest.
                with contextlib.suppress(OSError):
                    (self._identity.directory / UNSENT_FILE).touch()
            log.warning(
                "W&B stopped working (%s: %s); training goes on and metrics.jsonl is complete.",
                type(error).__name__,
                error,
            )
            close_service(dead=True)
            return False


def _keep_patch(run: Run, patch: str) -> None:
    path = Path(run.dir) / PATCH
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(patch + "\n", encoding="utf-8")
    keep(run, [path])


def _already_sent(run: Run, home: Path, mode: str) -> tuple[dict[int, set[str]], int]:
    """Return what earlier processes of this run sent: names by step, and the server's last step.

    An online log holds what was queued; the server itself knows better what it received.
    """
    known: dict[int, set[str]] = {}
    for path in logs_of(home, online=mode != "online"):
        if path.stem == f"run-{run.id}":
            for step, keys in logged_keys(path).items():
                known.setdefault(step, set()).update(keys)
    summary: Any = run.summary
    last = summary.get(X_AXIS) if mode == "online" else None
    return known, -1 if last is None else int(last)
