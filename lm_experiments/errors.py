"""The one error of bad input, and how errors become one sentence."""

import difflib
from collections.abc import Iterable

# The extra of this package that a choice or a command needs.
EXTRAS = {
    "hydra/launcher=ray": "ray",
    "hydra/launcher=slurm": "slurm",
    "hydra/launcher=submitit_slurm": "slurm",
    "hydra/launcher=submitit_local": "slurm",
    "hydra/sweeper=optuna": "optuna",
    "scripts/dashboard.py": "dashboard",
    "logger=tensorboard": "tensorboard",
    "logger=mlflow": "mlflow",
    "study.evaluate.tasks": "harness",
}


class InputError(ValueError):
    """What was asked for cannot be done.

    The message is one sentence for the user: the offending value, what is allowed, what to type.
    """


def one_sentence(error: Exception) -> str:
    """Return an error on one line; of an operating system's error, the file and the reason."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}."
    return " ".join(str(error).split("\n\n")[0].split())


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return " Did you mean ...?" with the nearest known word; empty where none is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {prefix}{near[0]}?" if near else ""


def not_installed(choice: str) -> str:
    """Return the sentence for a choice of `EXTRAS` whose packages are missing."""
    return (
        f"{choice} needs packages that are not installed; "
        f"type pip install 'lm_experiments[{EXTRAS[choice]}]'"
    )
