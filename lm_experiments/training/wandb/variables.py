"""Environment variables of the W&B client: those it refuses, and one that it may need."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def drop_refused() -> str | None:
    """Remove the WANDB_* variables that the client refuses; return which and why, None if none.

    Values are not repeated, since a URL may hold a password.
    """
    refused = {name: why for name in _set_here() if (why := _refusal(name))}
    for name in refused:
        del os.environ[name]
    return "; ".join(f"{name} is refused ({why})" for name, why in refused.items()) or None


def _set_here() -> list[str]:
    return sorted(name for name in os.environ if name.startswith("WANDB_"))


def _refusal(name: str) -> str | None:
    """Return why the client refuses a variable, in its words."""
    from wandb import Settings

    try:
        Settings().update_from_env_vars({name: os.environ[name]})
    except Exception as error:
        # Those of pydantic tell of the settings as a whole first.
        details = getattr(error, "errors", None)
        why = str(details()[0]["msg"]) if callable(details) else str(error).partition("\n")[0]
        return why.removeprefix("Value error, ")
    return None


def ensure_cache() -> None:
    """Give the client's service a folder for its log, which it would print without one."""
    if "WANDB_CACHE_DIR" in os.environ:
        return
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        (home / "wandb").mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        # It cannot be written, or there is none.
        os.environ["WANDB_CACHE_DIR"] = str(Path(tempfile.gettempdir(), f"wandb-{os.getuid()}"))
