"""Plain mappings into typed dataclasses: unknown keys and wrong types are clear errors."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from lm_experiments.errors import InputError
from lm_experiments.fields import documentation_of

T = TypeVar("T")
_hints = cache(typing.get_type_hints)


def build(
    cls: type[T],
    values: Mapping[str, Any],
    path: str,
    sections: Mapping[str, Callable[[Any], Any]] | None = None,
) -> T:
    """Build a dataclass from plain values.

    Args:
        cls: a dataclass whose fields are plain types, lists of strings, or optional ones.
        values: what was configured.
        path: the dotted key of ``values``, for messages.
        sections: for fields of other types, what builds them from their value.

    Raises:
        InputError: for a key that ``cls`` lacks, a missing one, or a value of another type.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{path}={values!r} is not a section with keys of its own.")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = _hints(cls)  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            raise InputError(unknown_key(path, key, fields))
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING is field.default_factory
        if required and name not in values:
            raise InputError(f"{dotted(path, name)} is not set.")
    built = {}
    for key, value in values.items():
        section = (sections or {}).get(key)
        try:
            own = section(value) if section else convert(value, hints[key], dotted(path, key))
        except InputError as error:
            if value is None and (text := documentation_of(typing.cast(Any, cls)).get(key)):
                raise InputError(f"{error} {key}: {text}") from None
            raise
        built[key] = own
    return cls(**built)


def dotted(path: str, key: str) -> str:
    """Join a path and a key as a user types them."""
    return f"{path}.{key}" if path else key


def unknown_key(path: str, key: str, known: Iterable[str]) -> str:
    """Return the sentence for a key that does not exist, with the nearest one that does."""
    names = list(known)
    near = difflib.get_close_matches(str(key), names, n=1, cutoff=0.5)
    if near:
        return f"{dotted(path, key)} is not a key; did you mean {dotted(path, near[0])}?"
    return (
        f"{dotted(path, key)} is not a key; the keys {f'of {path}' if path else 'here'} are "
        f"{', '.join(names) or 'none'}."
    )


def convert(value: Any, hint: Any, key: str) -> Any:
    """Return ``value`` as the type ``hint`` names, or raise an InputError naming both."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, parts, key)
    if dataclasses.is_dataclass(hint):
        return build(hint, value, key)  # type: ignore[arg-type]
    if origin is list:
        if not isinstance(value, list):
            raise InputError(f"{key}={value!r} is not a list; type {key}=[a,b].")
        return [convert(item, parts[0], f"{key}[{i}]") for i, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InputError(f"{key}={value!r} is not a section with keys of its own.")
        return {
            str(name): convert(item, parts[1], dotted(key, name)) for name, item in value.items()
        }
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is hint or hint is Any:
        return value
    if hint is str and type(value) is int:
        return str(value)
    # ${oc.env:...} is text, whatever it holds.
    if isinstance(value, str) and (plain := _from_text(value, hint)) is not None:
        return plain
    shown = "null" if value is None else repr(value)
    raise InputError(f"{key}={shown} is not {_TYPE_NAMES.get(hint, hint)}.")


_TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a word (put quotes around a number that is meant as one: 'name=\"1.50\"')",
    bool: "true or false",
    type(None): "null",
}


def _from_text(text: str, hint: Any) -> int | float | bool | None:
    """Return the number, or true or false, that a text stands for; None for other texts."""
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower())
    try:
        return int(text) if hint is int else float(text) if hint is float else None
    except ValueError:
        return None


def _convert_union(value: Any, hints: tuple[Any, ...], key: str) -> Any:
    if value is None and type(None) in hints:
        return None
    errors = []
    for hint in hints:
        if hint is not type(None):
            try:
                return convert(value, hint, key)
            except InputError as error:
                errors.append(str(error))
    raise InputError(errors[0].rstrip(".") + (", or null." if type(None) in hints else "."))
