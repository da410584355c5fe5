"""W&B's client: started without prompts or output, and ended, whatever it raises."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_experiments.training.wandb.axes import AXES, X_AXIS
from lm_experiments.training.wandb.offline import ID_FILE, read_id
from lm_experiments.training.wandb.run_id import forget_run, run_id
from lm_experiments.training.wandb.settings import WandbSettings
from lm_experiments.training.wandb.variables import drop_refused, ensure_cache

if TYPE_CHECKING:
    from types import ModuleType

    from wandb import Run

FINISH_TIMEOUT = 60.0

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

# Code and requirements are recorded by the run directory; scanning for them is most of the client's
# start-up time.
SETTINGS: dict[str, Any] = {
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


def start_run(
    config: WandbSettings, home: Path, description: Mapping[str, Any], commit: str | None = None
) -> tuple[Run | None, str, str | None]:
    """Start a W&B run, falling back from online to offline to none.

    Never prompts, never reuses a live run, never raises because of W&B.

    Args:
        config: what was set.
        home: the folder that the W&B run belongs to, made if need be; it keeps its id.
        description: what `wandb.init` is told: config, group, name and the like.
        commit: the code's commit, where it is known.

    Returns:
        The run; the mode that it got: online, offline or disabled; the sentence about what was
        in the way, if anything was.
    """
    run: Run | None = None
    problem = None if config.mode == "disabled" else drop_refused()
    ensure_cache()
    try:
        mode = _resolve_mode(config)
    except Exception as error:
        mode, problem = "offline", problem or first_line(error)
    if problem and mode == "online":
        # The server may have been named by a variable that is gone.
        mode = "offline"
    while run is None and mode != "disabled":
        try:
            run = _init(config, home, mode, description, commit)
        except Exception as error:
            if _DELETED in str(error) and problem != _RENEWED:
                forget_run(home)
                problem = _RENEWED
            else:
                mode, problem = _FALLBACK[mode], first_line(error)
            close_service()
    return run, mode, problem and problem.rstrip(".")


def finish(run: Run, exit_code: int) -> None:
    """End a run; 0 is success."""
    with quiet():
        run.finish(exit_code=exit_code)


def keep(run: Run, files: Iterable[Path]) -> None:
    """Make files part of a run, under their own names; they are sent at once."""
    with quiet():
        for path in files:
            run.save(str(path), base_path=str(path.parent), policy="now")


def first_line(error: Exception) -> str:
    """Return what an error says, on one line."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def close_service(dead: bool = False) -> None:
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


def _resolve_mode(config: WandbSettings) -> str:
    wanted = config.mode
    if wanted == "disabled":
        return wanted
    with quiet() as wandb:
        if wanted == "auto":
            wanted = _CLIENT_MODES[os.environ.get("WANDB_MODE") or wandb.setup().settings.mode]
        if wanted != "online" or has_credentials(wandb.setup().settings.base_url):
            return wanted
    if config.mode == "online":
        raise LookupError("logger.mode=online but no API key is found, see `wandb login`")
    return "offline"


def has_credentials(host: str) -> bool:
    """Look where the client itself looks: environment, netrc, settings; no network, no prompt."""
    from wandb.sdk.lib import wbauth

    found = wbauth.authenticate_session(
        host=host, source="lm_experiments", prompt=False, update_session=False
    )
    return found is not None


def _init(
    config: WandbSettings,
    home: Path,
    mode: str,
    description: Mapping[str, Any],
    commit: str | None,
) -> Run:
    with quiet() as wandb:
        known = wandb.Settings.model_fields
        settings = {key: value for key, value in SETTINGS.items() if key in known}
        if commit:
            # The client asks git for the address that belongs to it, and for nothing else.
            git = {"git_commit": commit, "git_root": str(Path(__file__).parent)}
            settings |= {"disable_git": False, **git}
        home.mkdir(exist_ok=True)
        begun, wanted = (home / ID_FILE).is_file(), config.dir and Path(config.dir).expanduser()
        # What was logged before has to be found again.
        folder = read_id(home)[2] if begun else wanted or home
        run: Run = wandb.init(
            mode=mode,
            project=config.project,
            entity=config.entity,
            dir=str(folder),
            id=run_id(home, folder),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(init_timeout=config.init_timeout, **settings),
            **description,
        )
        for axis in (X_AXIS, *AXES):
            run.define_metric(axis)
        run.define_metric("*", step_metric=X_AXIS)
        return run


@contextlib.contextmanager
def quiet() -> Iterator[ModuleType]:
    """Keep the client from printing; its own `silent` covers little of what a run can do."""
    import wandb

    usual = wandb.setup().settings
    wandb.termsetup(wandb.Settings(silent=True), None)
    try:
        yield wandb
    finally:
        wandb.termsetup(usual, None)


def say(problem: str, mode: str, whose: str) -> str:
    """Print and return the sentence on what was in the way of a run."""
    line = f"W&B: {problem}; {whose} is {mode}."
    print(line, file=sys.stderr, flush=True)
    return line
