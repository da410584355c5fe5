"""The one error of bad input, and how errors become one sentence."""

import difflib
from collections.abc import Iterable

# The extra of this package that a launcher needs.
EXTRAS = {"ray": "ray", "slurm": "slurm", "submitit_slurm": "slurm", "submitit_local": "slurm"}


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


def not_installed(launcher: str) -> str:
    """Return the sentence for a launcher whose packages are missing."""
    return (
        f"hydra/launcher={launcher} needs packages that are not installed; "
        f"type pip install 'lm_experiments[{EXTRAS[launcher]}]'"
    )
