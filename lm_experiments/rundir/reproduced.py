"""``reproduced.json``: which cells of a table were trained again, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_experiments.errors import InputError
from lm_experiments.rundir.atomic import number_or_word, read_object, write_json
from lm_experiments.rundir.names import REPRODUCED, damaged
from lm_experiments.rundir.parse import build


@dataclass(frozen=True)
class RetrainedCell:
    """A cell that was trained again.

    Attributes:
        cell: its arm and seed, for people.
        recorded: nats per token, as the table has it.
        retrained: nats per token; None where the training failed.
        verdict: bit-equal, within noise, differs or failed.
    """

    cell: str
    recorded: float
    retrained: float | None
    verdict: str


@dataclass(frozen=True)
class Reproduction:
    """One command's cells.

    Attributes:
        table: the SHA-256 of the ``table.json`` that they were drawn from.
        time: when they had been trained, in UTC, ISO 8601.
        cells: in the order in which they were trained.
    """

    table: str
    time: str
    cells: list[RetrainedCell] = field(default_factory=list)


def write_reproduction(folder: Path, found: Reproduction) -> None:
    """Write the folder's record, whole or not at all."""
    write_json(folder / REPRODUCED, dataclasses.asdict(found))


def read_reproduction(folder: Path) -> Reproduction:
    """Return the folder's record; `FileNotFoundError`, or `InputError` where it is damaged."""
    path = folder / REPRODUCED
    try:
        return build(Reproduction, read_object(path), "", {"cells": _cells})
    except InputError as error:
        raise damaged(path, str(error).rstrip(".")) from None


def _cells(values: list[Mapping[str, Any]]) -> list[RetrainedCell]:
    # A loss that is not finite is a word.
    plain = [{key: number_or_word(of) for key, of in value.items()} for value in values]
    return [build(RetrainedCell, value, "cells") for value in plain]
