"""A run's mirror in Weights & Biases, which may fail in any way without stopping the training.

The local `metrics.jsonl` is the source of truth; after a resume W&B is brought level with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from lm_experiments.training.logged_run import LoggedRun
from lm_experiments.training.wandb.offline import ID_FILE, UNSENT_FILE
from lm_experiments.training.wandb.run_id import forget_run, run_id
from lm_experiments.training.wandb.settings import WandbSettings
from lm_experiments.training.wandb.transaction_log import X_AXIS, logged_keys
from lm_experiments.training.wandb.variables import drop_refused, ensure_cache

if TYPE_CHECKING:
    from types import ModuleType

    from wandb import Run


log = logging.getLogger(__name__)

FINISH_TIMEOUT = 60.0

_NAME_LIMIT = 128

# The client's names of its modes, and ours.
_CLIENT_MODES = {
    "online": "online",
    "run": "online",
    "shared": "online",
    "offline": "offline",
    "dryrun": "offline",
    "disabled": "disabled",
}
_FALLBACK = {"online": "offline", "offline": "disabled"}
# What the server says of an id that it does not give again, and what becomes of the run.
_DELETED = "previously created and deleted"
_RENEWED = "the run was deleted there, and a new one takes its place"

# Whole words, so that `eos_token`, `tokens` and `tokenizer` stay.
_SECRET = re.compile(
    r"api_?key|secret|password|credential|^((access|auth|bearer|api|hf|hub|wandb)_?)?token$",
    re.IGNORECASE,
)

# Git, code and requirements are recorded by the run directory; scanning for them is most of the
# client's start-up time.
_SETTINGS: dict[str, Any] = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "label_disable": True,
    "finish_timeout": FINISH_TIMEOUT,
    "finish_timeout_raises": True,
    "x_save_requirements": False,
    "x_transaction_log_flush_interval": 2.0,
}


class WandbMirror(Logger):
    """Sends every logged row to one W&B run, with `trainer/global_step` as the x axis.

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
        self.mode = "disabled"
        if getattr(rank_zero_only, "rank", 0):
            return
        continued = (identity.directory / ID_FILE).is_file()
        self._run, self.mode = start_run(config, identity)
        if self._run is not None and continued:
            self._known, self._server_step = _already_sent(self._run, identity, self.mode)
        if self._run is not None and self.mode == "online":
            log.info("W&B run: %s", self._run.url)

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
        if (run := self._run) is None or step <= self._server_step:
            return
        known = self._known.get(step, set())
        if row := {key: value for key, value in metrics.items() if key not in known}:
            self._guard(lambda: run.log({**row, X_AXIS: step}))

    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing: the run's config is the resolved `config.yaml` and stays equal to it."""

    def bring_level(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Send the rows of `metrics.jsonl` that a killed process logged but W&B never got."""
        for row in rows:
            step = int(row["step"])
            self.log_metrics({key: value for key, value in row.items() if key != "step"}, step)

    def finish(self, exit_code: int) -> None:
        """End the run (0 is success); waits at most `FINISH_TIMEOUT` seconds for an upload."""
        run, self._run = self._run, None
        if run is not None:
            if self._guard(lambda: _finish(run, exit_code)) and self.mode == "online":
                (self._identity.directory / UNSENT_FILE).unlink(missing_ok=True)
            _close_service()

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
            _close_service(dead=True)
            return False


def _finish(run: Run, exit_code: int) -> None:
    with _quiet():
        run.finish(exit_code=exit_code)


def start_run(config: WandbSettings, identity: LoggedRun) -> tuple[Run | None, str]:
    """Start a W&B run and return it with its mode, falling back from online to offline to none.

    Never prompts, never reuses a live run, never raises because of W&B.
    """
    run: Run | None = None
    problem = None if config.mode == "disabled" else drop_refused()
    ensure_cache()
    try:
        mode = _resolve_mode(config)
    except Exception as error:
        mode, problem = "offline", problem or _first_line(error)
    if problem and mode == "online":
        # The server may have been named by a variable that is gone.
        mode = "offline"
    while run is None and mode != "disabled":
        try:
            run = _init(config, identity, mode)
        except Exception as error:
            if _DELETED in str(error) and problem != _RENEWED:
                forget_run(identity.directory)
                problem = _RENEWED
            else:
                mode, problem = _FALLBACK[mode], _first_line(error)
            _close_service()
    if problem is not None:
        line = f"W&B: {problem.rstrip('.')}; this run's W&B log is {mode}."
        log.warning(line)
        print(line, file=sys.stderr, flush=True)
    return run, mode


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _resolve_mode(config: WandbSettings) -> str:
    wanted = config.mode
    if wanted == "disabled":
        return wanted
    with _quiet() as wandb:
        if wanted == "auto":
            wanted = _CLIENT_MODES[os.environ.get("WANDB_MODE") or wandb.setup().settings.mode]
        if wanted != "online" or _has_credentials(wandb.setup().settings.base_url):
            return wanted
    if config.mode == "online":
        raise LookupError("logger.mode=online but no API key is found, see `wandb login`")
    return "offline"


def _has_credentials(host: str) -> bool:
    """Look where the client itself looks: environment, netrc, settings; no network, no prompt."""
    from wandb.sdk.lib import wbauth

    found = wbauth.authenticate_session(
        host=host, source="lm_experiments", prompt=False, update_session=False
    )
    return found is not None


def _init(config: WandbSettings, identity: LoggedRun, mode: str) -> Run:
    with _quiet() as wandb:
        known = wandb.Settings.model_fields
        settings = {key: value for key, value in _SETTINGS.items() if key in known}
        run: Run = wandb.init(
            mode=mode,
            project=config.project,
            entity=config.entity,
            tags=list(config.tags),
            dir=str(identity.directory),
            id=run_id(identity.directory),
            resume="allow",
            reinit="create_new",
            group=identity.sweep[:_NAME_LIMIT],
            name=f"{identity.arm} s{identity.seed}"[:_NAME_LIMIT],
            job_type="train",
            config=public_config(identity.config),
            settings=wandb.Settings(init_timeout=config.init_timeout, **settings),
        )
        run.define_metric(X_AXIS)
        run.define_metric("*", step_metric=X_AXIS)
        return run


def public_config(value: Any) -> Any:
    """Return `value` as nested dicts, lists, strings, numbers, bools and None, without secrets."""
    if isinstance(value, Mapping):
        kept = {str(key): item for key, item in value.items() if not _SECRET.search(str(key))}
        return {key: public_config(item) for key, item in kept.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [public_config(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _already_sent(run: Run, identity: LoggedRun, mode: str) -> tuple[dict[int, set[str]], int]:
    """Return what earlier processes of this run sent: names by step, and the server's last step.

    An online log holds what was queued; the server itself knows better what it received.
    """
    folders = ("offline-run-*",) if mode == "online" else ("offline-run-*", "run-*")
    known: dict[int, set[str]] = {}
    for folder in folders:
        for path in (identity.directory / "wandb").glob(f"{folder}/run-{run.id}.wandb"):
            for step, keys in logged_keys(path).items():
                known.setdefault(step, set()).update(keys)
    summary: Any = run.summary
    last = summary.get(X_AXIS) if mode == "online" else None
    return known, -1 if last is None else int(last)


@contextlib.contextmanager
def _quiet() -> Iterator[ModuleType]:
    """Keep the client from printing; its own `silent` covers a started run only."""
    import wandb

    usual = wandb.setup().settings
    wandb.termsetup(wandb.Settings(silent=True), None)
    try:
        yield wandb
    finally:
        wandb.termsetup(usual, None)


def _close_service(dead: bool = False) -> None:
    """End the client's service, unless another run of this process is live.

    It waits for the transaction log to be complete on disk, which `finish` does not, and frees
    the id of a run that failed to start; asking to finish such a run blocks for good (wandb 0.31).
    A dead service is forgotten, so that the next run starts its own and the exit hook stays quiet.
    """
    with contextlib.suppress(Exception):
        import wandb

        if dead:
            wandb.teardown(exit_code=1)
        elif wandb.setup().most_recent_active_run is None:
            wandb.teardown()
