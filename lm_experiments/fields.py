"""What a field of a typed configuration is: its default, its documentation, and its use.

The use stands beside the default, and the documentation in the Attributes section of the class. A
field without a use determines the result::

    max_steps: int = 300
    threads: Annotated[int | None, Use.PLACE] = None
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any

from lm_experiments.registry import default_of


class Use(enum.Enum):
    """What a key of the configuration is for.

    Attributes:
        RESULT: determines the result of a run; its value makes another arm.
        LATER: determines the result, and earlier versions lacked it. At its default it is not
            hashed, so that their runs are found. Its value makes another arm.
        SEED: makes another run of the same arm.
        SOURCE: says where something comes from, or how it is found. What is found is hashed
            instead. Its value makes another arm.
        DERIVED: filled in by the program, never typed; part of the hash.
        PLACE: where and how a run is executed, and who watches.
        NAME: what the run and its sweep are called.
        COMMAND: what the command does with its runs; not part of any run.
    """

    RESULT = enum.auto()
    LATER = enum.auto()
    SEED = enum.auto()
    SOURCE = enum.auto()
    DERIVED = enum.auto()
    PLACE = enum.auto()
    NAME = enum.auto()
    COMMAND = enum.auto()

    @property
    def in_hash(self) -> bool:
        """Whether a run with another value is another run."""
        return self in (Use.RESULT, Use.LATER, Use.SEED, Use.DERIVED)

    @property
    def makes_arm(self) -> bool:
        """Whether a run with another value belongs to another arm."""
        return self in (Use.RESULT, Use.LATER, Use.SOURCE)


@dataclass(frozen=True)
class Field:
    """One field of a configuration.

    Attributes:
        type: its type, without the use.
        declared: the dataclass's own field.
        documentation: its entry in the Attributes section, on one line; empty where it lacks one.
    """

    name: str
    type: Any
    declared: dataclasses.Field[Any]
    documentation: str
    use: Use

    @property
    def default(self) -> Any:
        """Its default value now, `registry.MISSING` where it has none."""
        return default_of(self.declared)

    @property
    def summary(self) -> str:
        """The first sentence of its documentation, without a full stop."""
        return first_sentence(self.documentation).rstrip(".")


def first_sentence(text: str) -> str:
    """Return the first sentence of a text; "et al." ends none."""
    return re.split(r"(?<=(?<! al)\.) ", text)[0]


@cache
def fields_of(cls: Any) -> tuple[Field, ...]:
    """Return what is declared about each field of a dataclass."""
    plain, marked = typing.get_type_hints(cls), typing.get_type_hints(cls, include_extras=True)
    marks = {name: getattr(hint, "__metadata__", ()) for name, hint in marked.items()}
    texts = documentation_of(cls)
    return tuple(
        Field(
            name=field.name,
            type=plain[field.name],
            declared=field,
            documentation=texts.get(field.name, ""),
            use=next((mark for mark in marks[field.name] if isinstance(mark, Use)), Use.RESULT),
        )
        for field in dataclasses.fields(cls)
    )


@cache
def documentation_of(cls: Any) -> dict[str, str]:
    """Return the Attributes sections of a class and its bases: name -> text on one line."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        docstring = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        section = docstring.partition("\nAttributes:\n")[2].split("\n\n")[0]
        for entry in re.split(r"\n(?=    \S)", section):
            if found := re.match(r"\s*(\w+): (.+)", entry, re.DOTALL):
                texts[found[1]] = " ".join(found[2].split())
    return texts
