"""The component registry: one name in one group stands for one class and its options.

A component is declared beside its code and nowhere else::

    @dataclass(frozen=True)
    class MyNormOptions:
        eps: float = 1e-5

    @register("norm", "mynorm", MyNormOptions)
    class MyNorm(Norm): ...

It can then be chosen (``norm=mynorm model.norm.eps=1e-6``), is listed, and runs through the same
tests as the others. Optimizers, schedules and loggers hold their options themselves::

    @register("optimizer", "mine")
    @dataclass(frozen=True)
    class Mine(Optimizer): ...
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from lm_experiments.errors import InputError, did_you_mean

# The slots of the architecture; their options are typed as model.AXIS.OPTION.
AXES = ("norm", "placement", "ffn", "position", "attention", "init")
GROUPS = (*AXES, "tokenizer", "optimizer", "schedule", "logger")
# How OmegaConf writes a value that has to be given.
MISSING = "???"

C = TypeVar("C")


class UnknownComponentError(InputError):
    """A name that no component of its group has; the message lists those that exist."""


@dataclass(frozen=True)
class NoOptions:
    """The options of a component that has none."""


@dataclass(frozen=True)
class Component:
    """What the registry knows of one component.

    Attributes:
        build: called with an instance of ``options`` first, then with what its group's base class
            documents.
        summary: the first line of the component's docstring.
    """

    group: str
    name: str
    build: Callable[..., Any]
    options: type[Any]
    summary: str

    @property
    def section(self) -> str:
        """The dotted key under which its options are typed."""
        return f"model.{self.group}" if self.group in AXES else self.group

    def defaults(self) -> dict[str, Any]:
        """Return the options at their defaults as plain values, the component's name first.

        An option without a default is `MISSING`.
        """
        fields = dataclasses.fields(self.options)
        return {"name": self.name, **{field.name: default_of(field) for field in fields}}


@dataclass(frozen=True)
class Choice:
    """A chosen component: its name, and its options (None for the defaults)."""

    name: str
    options: Any = None


_components: dict[str, dict[str, Component]] = {group: {} for group in GROUPS}


def add(group: str, name: str, build: Callable[..., Any], options: type, summary: str) -> None:
    """Register a component; a second one under the same name is a ValueError."""
    known = _group(group)
    if name in known:
        raise ValueError(
            f"{group}={name} is registered already, by {known[name].build!r}; "
            "give the new component another name."
        )
    known[name] = Component(group, name, build, options, summary)


def register(group: str, name: str, options: type | None = None) -> Callable[[type[C]], type[C]]:
    """Class decorator that registers the class as component ``name`` of ``group``.

    The class gets the attribute ``name``.

    Args:
        group: one of `GROUPS`.
        name: what a user types after ``group=``.
        options: a dataclass with the component's options. None where the class is that dataclass
            itself, or has no options.
    """

    def _decorate(cls: type[C]) -> type[C]:
        lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
        own = cls if dataclasses.is_dataclass(cls) else NoOptions
        add(group, name, cls, options or own, lines[0] if lines else "")
        cls.name = name  # type: ignore[attr-defined]
        return cls

    return _decorate


def component(group: str, name: str) -> Component:
    """Look a component up; an unknown name is an UnknownComponentError that lists the known."""
    known = _group(group)
    if name not in known:
        hint = did_you_mean(name, known, f"{group}=")
        raise UnknownComponentError(
            f"{group}={name} is not a component; {group} can be {', '.join(known)}.{hint}"
        )
    return known[name]


def names(group: str) -> list[str]:
    """Return the names in a group, in the order of registration."""
    return list(_group(group))


def choose(group: str, name: str, options: Mapping[str, Any] | None = None) -> Choice:
    """Build a `Choice` from a name and plain option values; an unknown option is a ValueError."""
    found = component(group, name)
    known = [field.name for field in dataclasses.fields(found.options)]
    for key in options or {}:
        if key not in known:
            raise ValueError(
                f"{group}={name} has no option {key!r}; it has {', '.join(known) or 'none'}."
            )
    return Choice(name, found.options(**(options or {})))


def build(group: str, choice: Choice, *args: Any, **kwargs: Any) -> Any:
    """Construct the chosen component: its options first, then the group's own arguments."""
    found = component(group, choice.name)
    return found.build(options_of(group, choice), *args, **kwargs)


def options_of(group: str, choice: Choice) -> Any:
    """Return the options of a choice, which are the component's defaults where it has None."""
    return component(group, choice.name).options() if choice.options is None else choice.options


def plain_choice(group: str, choice: Choice) -> dict[str, Any]:
    """Return a choice as plain values: its name and all of its options."""
    return {"name": choice.name, **dataclasses.asdict(options_of(group, choice))}


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return a field's default, `MISSING` where it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return MISSING if field.default is dataclasses.MISSING else field.default


def _group(group: str) -> dict[str, Component]:
    if group not in _components:
        raise UnknownComponentError(
            f"{group!r} is not a group; the groups are {', '.join(GROUPS)}."
        )
    return _components[group]
