"""Pointers of Git LFS: what lies in a clone in the place of large files until they are pulled."""

from __future__ import annotations

from pathlib import Path

from lm_experiments.errors import InputError

POINTER = b"version https://git-lfs.github.com/spec/"


def check_pulled(path: Path) -> None:
    """Raise `InputError` if a file is the pointer to its content; `OSError` if it is unreadable."""
    with path.open("rb") as file:
        start = file.read(len(POINTER))
    if start == POINTER:
        raise InputError(
            f"{path} is a pointer of Git LFS and not the file itself; type git lfs pull in the "
            "folder of its repository"
        )
