"""The component registry: one name on one axis stands for one class and its options.

A component is declared beside its code and nowhere else::

    @dataclass(frozen=True)
    class MyNormOptions:
        eps: float = 1e-5

    @register("norm", "mynorm", MyNormOptions)
    class MyNorm(Norm): ...

It can then be chosen (``norm=mynorm model.norm.eps=1e-6``), is listed, and is held to the same
tests as the others.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

AXES = ("norm", "placement", "ffn", "position", "attention", "init")

C = TypeVar("C")


class UnknownComponentError(ValueError):
    """A name that no component on its axis has; the message lists those that exist."""


@dataclass(frozen=True)
class NoOptions:
    """The options of a component that has none."""


@dataclass(frozen=True)
class Component:
    """What the registry knows of one component.

    Attributes:
        build: called with an instance of ``options`` first, then with what its axis's base class
            documents.
        summary: the first line of the component's docstring.
    """

    axis: str
    name: str
    build: Callable[..., Any]
    options: type[Any]
    summary: str

    def defaults(self) -> dict[str, Any]:
        """Return the component's options at their defaults, as plain values, its name first."""
        return {"name": self.name, **dataclasses.asdict(self.options())}


@dataclass(frozen=True)
class Choice:
    """A component chosen for an axis: its name, and its options (None for the defaults)."""

    name: str
    options: Any = None


_components: dict[str, dict[str, Component]] = {axis: {} for axis in AXES}


def add(axis: str, name: str, build: Callable[..., Any], options: type, summary: str) -> None:
    """Register a component; a second one under the same name is a ValueError."""
    known = _axis(axis)
    if name in known:
        raise ValueError(
            f"{axis}={name} is registered already, by {known[name].build!r}; "
            "give the new component another name."
        )
    known[name] = Component(axis, name, build, options, summary)


def register(axis: str, name: str, options: type = NoOptions) -> Callable[[type[C]], type[C]]:
    """Class decorator that registers the class as component ``name`` on ``axis``.

    Args:
        axis: one of `AXES`.
        name: what a user types after ``axis=``.
        options: a dataclass in which every field has a default.
    """

    def decorate(cls: type[C]) -> type[C]:
        lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
        add(axis, name, cls, options, lines[0] if lines else "")
        return cls

    return decorate


def component(axis: str, name: str) -> Component:
    """Look a component up; an unknown name is an UnknownComponentError that lists the known."""
    known = _axis(axis)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {axis}={near[0]}?" if near else ""
        raise UnknownComponentError(
            f"{axis}={name} is not a component; {axis} can be {', '.join(known)}.{hint}"
        )
    return known[name]


def names(axis: str) -> list[str]:
    """Return the names on an axis, in the order of registration."""
    return list(_axis(axis))


def choose(axis: str, name: str, options: Mapping[str, Any] | None = None) -> Choice:
    """Build a `Choice` from a name and plain option values; an unknown option is a ValueError."""
    found = component(axis, name)
    known = [field.name for field in dataclasses.fields(found.options)]
    for key in options or {}:
        if key not in known:
            raise ValueError(
                f"{axis}={name} has no option {key!r}; "
                f"it has {', '.join(known) if known else 'none'}."
            )
    return Choice(name, found.options(**(options or {})))


def build(axis: str, choice: Choice, *args: Any, **kwargs: Any) -> Any:
    """Construct the chosen component: its options first, then the axis's own arguments."""
    found = component(axis, choice.name)
    options = found.options() if choice.options is None else choice.options
    return found.build(options, *args, **kwargs)


def _axis(axis: str) -> dict[str, Component]:
    if axis not in _components:
        raise UnknownComponentError(f"{axis!r} is not an axis; the axes are {', '.join(AXES)}.")
    return _components[axis]
